-- From version 1 to 2: queues of external loops (see schema.sql).
ALTER TABLE heads ADD COLUMN queue text COLLATE "C";
DROP INDEX heads_queue;
CREATE INDEX heads_queue ON heads (tenant, queued_at, id) WHERE state = 0 AND queue IS NULL;
CREATE INDEX heads_loops ON heads (tenant, queue, queued_at, id) WHERE state = 0 AND queue IS NOT NULL;
