-- From raw logs to statistics with two materialized tables: a stream-batch lakehouse in one script.
-- Run it with   tidegate -u jdbc:hive2://127.0.0.1:10000/default -f examples/walkthrough.sql
-- docs/walkthrough.md explains each step.

-- Step 1: the ODS layer, with generated data --------------------------------------------------

CREATE SCHEMA IF NOT EXISTS walkthrough;

USE walkthrough;

CREATE TABLE ods_user_log (
  item_id INT NOT NULL,
  user_id INT NOT NULL,
  vtime TIMESTAMP NOT NULL,
  ds STRING NOT NULL
) USING delta
PARTITIONED BY (ds);

CREATE TABLE ods_dim_product (
  item_id INT NOT NULL,
  title STRING,
  pict_url STRING,
  brand_id INT NOT NULL,
  seller_id INT NOT NULL
) USING delta;

-- One page view every 25 seconds for two days: item (id * 7) % 1000 seen by user (id * id) % 997.
INSERT INTO ods_user_log
SELECT
  CAST((id * 7) % 1000 AS INT),
  CAST((id * id) % 997 AS INT),
  vtime,
  date_format(vtime, 'yyyyMMdd')
FROM (SELECT id, TIMESTAMP '2024-12-15 00:00:00' + make_dt_interval(0, 0, 0, id * 25) AS vtime
      FROM RANGE(6912)) AS views;

INSERT INTO ods_dim_product
SELECT
  CAST(id AS INT),
  concat('Book ', id),
  concat('pictures.example/', id),
  CAST(1000 + id % 50 AS INT),
  CAST(1000 + id % 20 AS INT)
FROM RANGE(900);

SELECT * FROM ods_dim_product ORDER BY item_id LIMIT 10;

SELECT * FROM ods_user_log ORDER BY vtime LIMIT 10;

-- Step 2: the materialized tables -------------------------------------------------------------

-- The DWD layer widens the log. An inner join: items 900 to 999 have no product and fall out.
CREATE MATERIALIZED TABLE dwd_user_log_product (
  PRIMARY KEY (item_id) NOT ENFORCED
)
PARTITIONED BY (ds)
WITH ('partition.fields.ds.date-formatter' = 'yyyyMMdd')
FRESHNESS = INTERVAL '1' HOUR -- refreshed every hour
AS SELECT
  l.ds,
  l.item_id,
  l.user_id,
  l.vtime,
  r.brand_id,
  r.seller_id
FROM ods_user_log l
INNER JOIN ods_dim_product r ON l.item_id = r.item_id;

// The DWS layer counts page views and unique visitors per hour, and per day under hh = 'day'.
CREATE MATERIALIZED TABLE dws_overall (
  PRIMARY KEY (ds, hh) NOT ENFORCED
)
PARTITIONED BY (ds)
WITH ('partition.fields.ds.date-formatter' = 'yyyyMMdd')
FRESHNESS = INTERVAL '1' HOUR -- refreshed every hour
AS SELECT
  ds,
  COALESCE(hh, 'day') AS hh,
  COUNT(*) AS pv,
  COUNT(DISTINCT user_id) AS uv
FROM (SELECT ds, date_format(vtime, 'HH') AS hh, user_id FROM dwd_user_log_product) tmp
GROUP BY GROUPING SETS (ds, (ds, hh));

SHOW MATERIALIZED TABLES;

SHOW CREATE MATERIALIZED TABLE dws_overall;

-- Step 3: update them -------------------------------------------------------------------------

-- Backfill one day of both tables in one statement, without waiting for the next full hour.
ALTER MATERIALIZED TABLE dwd_user_log_product REFRESH PARTITION (ds = '20241215') CASCADE;

ALTER MATERIALIZED TABLE dwd_user_log_product REFRESH PARTITION (ds = '20241216') CASCADE;

-- Late data for one day only: its partition is rewritten, the other stays as it is.
INSERT INTO ods_user_log
SELECT CAST(id AS INT), 777, TIMESTAMP '2024-12-16 23:59:59', '20241216' FROM RANGE(5) AS late;

ALTER MATERIALIZED TABLE dwd_user_log_product REFRESH PARTITION (ds = '20241216') CASCADE;

-- From batch to stream: one statement per table, the data stays.
ALTER MATERIALIZED TABLE dwd_user_log_product SET FRESHNESS = INTERVAL '1' MINUTE;

ALTER MATERIALIZED TABLE dws_overall SET FRESHNESS = INTERVAL '1' MINUTE;

DESCRIBE EXTENDED dwd_user_log_product;

-- Step 4: query them --------------------------------------------------------------------------

-- A preview of the 100 latest rows.
SELECT * FROM dwd_user_log_product ORDER BY vtime DESC LIMIT 100;

SELECT * FROM dws_overall ORDER BY ds, hh;
