-- The flights of one day or of several. REPLACE WHERE makes repeating the statement harmless.

INSERT INTO flights.ods_flights
REPLACE WHERE flight_day BETWEEN DATE '$first' AND DATE '$last'
SELECT * FROM parquet.`$staging/arrival.parquet`;
