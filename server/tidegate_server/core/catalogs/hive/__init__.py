"""Tables of a Hive Metastore other than that of the session catalog: the type ``hive``."""
