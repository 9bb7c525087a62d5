-- The flights of one or several days. REPLACE WHERE makes the statement idempotent.

INSERT INTO flights.ods_flights
REPLACE WHERE flight_day BETWEEN DATE '$first' AND DATE '$last'
SELECT * FROM parquet.`$staging/arrival.parquet`;
