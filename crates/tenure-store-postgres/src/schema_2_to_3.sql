-- From version 2 to 3: forks (see schema.sql).
CREATE TABLE lineage (
  shard    smallint NOT NULL,
  session  uuid NOT NULL,
  up_to    bigint NOT NULL,
  ancestor uuid NOT NULL,
  PRIMARY KEY (shard, session, up_to)
);
CREATE INDEX lineage_ancestor ON lineage (shard, ancestor, up_to);
