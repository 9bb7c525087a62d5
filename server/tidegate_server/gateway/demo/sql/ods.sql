-- The ODS layer: tables as they arrive. Delta, with a change data feed for incremental refreshes.

CREATE SCHEMA IF NOT EXISTS flights;

CREATE TABLE IF NOT EXISTS flights.ods_airlines (
  carrier STRING NOT NULL,
  name STRING
) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');

CREATE TABLE IF NOT EXISTS flights.ods_airports (
  faa STRING NOT NULL,
  name STRING,
  lat DOUBLE,
  lon DOUBLE,
  alt INT,
  tzone STRING
) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');

CREATE TABLE IF NOT EXISTS flights.ods_planes (
  tailnum STRING NOT NULL,
  year INT,
  manufacturer STRING,
  model STRING,
  seats INT,
  engine STRING
) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');

CREATE TABLE IF NOT EXISTS flights.ods_weather (
  origin STRING NOT NULL,
  time_hour TIMESTAMP NOT NULL,
  temp DOUBLE,
  wind_speed DOUBLE,
  precip DOUBLE,
  visib DOUBLE
) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');

-- One row per message of an airline. A cancellation is sometimes reported twice.
CREATE TABLE IF NOT EXISTS flights.ods_flights (
  message_id STRING NOT NULL,
  flight_day DATE NOT NULL,
  carrier STRING NOT NULL,
  flight INT NOT NULL,
  tailnum STRING,
  origin STRING NOT NULL,
  dest STRING NOT NULL,
  time_hour TIMESTAMP,
  sched_dep_time INT,
  dep_time INT,
  dep_delay INT,
  sched_arr_time INT,
  arr_time INT,
  arr_delay INT,
  air_time INT,
  distance INT
) USING delta
PARTITIONED BY (flight_day)
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
