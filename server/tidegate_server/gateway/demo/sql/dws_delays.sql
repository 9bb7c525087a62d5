-- The DWS layer: delays per month, per month and airline, per month and airport. Refreshed on a
-- schedule: FULL.

CREATE MATERIALIZED TABLE IF NOT EXISTS flights.dws_delays
COMMENT 'Delays per month, with subtotals by airline and by airport'
FRESHNESS = INTERVAL '1' MINUTE
REFRESH_MODE = FULL
AS SELECT
  flight_month,
  COALESCE(airline, 'all') AS airline,
  COALESCE(origin, 'all') AS origin,
  COUNT(*) AS flights,
  COUNT(DISTINCT tailnum) AS planes,
  COUNT_IF(cancelled) AS cancelled,
  COUNT_IF(arr_delay > 15) AS late,
  ROUND(AVG(dep_delay), 2) AS avg_dep_delay,
  ROUND(AVG(arr_delay), 2) AS avg_arr_delay
FROM (
  SELECT substr(flight_day, 1, 7) AS flight_month, airline, origin, tailnum, cancelled,
         dep_delay, arr_delay
  FROM flights.dwd_flights
) f
GROUP BY GROUPING SETS (flight_month, (flight_month, airline), (flight_month, origin));
