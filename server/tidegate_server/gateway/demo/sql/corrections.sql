-- The day after: flights that were in the air at midnight have landed; duplicates are deleted.

MERGE INTO flights.ods_flights AS known
USING parquet.`$staging/corrections.parquet` AS landed
ON known.flight_day = DATE '$day' AND known.message_id = landed.message_id
WHEN MATCHED THEN UPDATE SET
  arr_time = landed.arr_time,
  arr_delay = landed.arr_delay,
  air_time = landed.air_time;

DELETE FROM flights.ods_flights
WHERE flight_day = DATE '$day' AND message_id LIKE '%/repeated';
