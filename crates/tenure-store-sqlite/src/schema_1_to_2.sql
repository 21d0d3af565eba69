-- From version 1 to 2: the leases that sessions had (see schema.sql).
ALTER TABLE heads ADD COLUMN leased_seq INTEGER NOT NULL DEFAULT 0;

CREATE TABLE leases (
  session  BLOB NOT NULL,
  epoch    INTEGER NOT NULL,
  shard    INTEGER NOT NULL,
  tenant   TEXT NOT NULL,
  node     BLOB NOT NULL,
  from_at  INTEGER NOT NULL,
  from_seq INTEGER NOT NULL,
  to_at    INTEGER NOT NULL,
  to_seq   INTEGER NOT NULL,
  how      INTEGER NOT NULL,
  PRIMARY KEY (session, epoch)
) STRICT, WITHOUT ROWID;
