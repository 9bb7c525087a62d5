-- The DWD layer: every flight with everything known about it. Fresh within seconds: CONTINUOUS.

CREATE MATERIALIZED TABLE IF NOT EXISTS flights.dwd_flights
COMMENT 'Flights with airline, airport, plane and weather'
PARTITIONED BY (flight_day)
WITH ('partition.fields.flight_day.date-formatter' = 'yyyy-MM-dd')
FRESHNESS = INTERVAL '5' SECOND
REFRESH_MODE = CONTINUOUS
AS SELECT
  date_format(f.flight_day, 'yyyy-MM-dd') AS flight_day,
  f.message_id,
  f.carrier,
  l.name AS airline,
  f.flight,
  f.tailnum,
  p.manufacturer,
  p.model,
  p.seats,
  f.origin,
  f.dest,
  a.name AS dest_name,
  f.distance,
  f.sched_dep_time,
  f.dep_delay,
  f.arr_delay,
  f.dep_time IS NULL AS cancelled,
  w.temp,
  w.wind_speed,
  w.precip,
  w.visib
FROM flights.ods_flights f
JOIN flights.ods_airlines l ON f.carrier = l.carrier
LEFT JOIN flights.ods_airports a ON f.dest = a.faa
LEFT JOIN flights.ods_planes p ON f.tailnum = p.tailnum
LEFT JOIN flights.ods_weather w ON f.origin = w.origin AND f.time_hour = w.time_hour;
