-- From version 2 to 3: conditions of upstreams (see schema.sql).
CREATE TABLE conditions (
  id         BLOB PRIMARY KEY,
  shard      INTEGER NOT NULL,
  credential TEXT NOT NULL,
  model      TEXT NOT NULL,
  body       TEXT NOT NULL,
  UNIQUE (credential, model)
) STRICT, WITHOUT ROWID;

ALTER TABLE heads ADD COLUMN condition BLOB;
ALTER TABLE heads ADD COLUMN granted INTEGER;
CREATE INDEX heads_condition ON heads (condition, tenant, state_since) WHERE state = 2 AND condition IS NOT NULL;
