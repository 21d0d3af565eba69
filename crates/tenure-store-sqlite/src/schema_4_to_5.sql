-- From version 4 to 5: forks (see schema.sql).
CREATE TABLE lineage (
  session  BLOB NOT NULL,
  up_to    INTEGER NOT NULL,
  ancestor BLOB NOT NULL,
  shard    INTEGER NOT NULL,
  PRIMARY KEY (session, up_to)
) STRICT, WITHOUT ROWID;
CREATE INDEX lineage_ancestor ON lineage (ancestor, up_to);
