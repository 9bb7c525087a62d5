"""Types of catalogs: which options they have, and which catalogs of Spark they become."""
