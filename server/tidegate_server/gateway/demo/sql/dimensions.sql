-- Airlines, airports, planes and the weather of the year, from a staging directory.

INSERT OVERWRITE flights.ods_airlines SELECT * FROM parquet.`$staging/airlines.parquet`;

INSERT OVERWRITE flights.ods_airports SELECT * FROM parquet.`$staging/airports.parquet`;

INSERT OVERWRITE flights.ods_planes SELECT * FROM parquet.`$staging/planes.parquet`;

INSERT OVERWRITE flights.ods_weather SELECT * FROM parquet.`$staging/weather.parquet`;
