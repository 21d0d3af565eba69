// The log of commands: from the rows, so that it is the same after a reload and without compute.
import { useState } from "react";
import { Button } from "react-aria-components";
import { Failure, fetchRaw, sessionPath } from "../api/client";
import { Clock, Copy, Empty, Problem } from "../parts/parts";
import { LongText, inertLine } from "../parts/text";
import { size } from "../parts/format";
import { setQuery, useAddress } from "../router";
import { briefOf, callState, durationOf } from "./Conversation";
import { blocks, text, type Entry } from "./entries";

/** So much of a full output is read at a time. */
const PIECE = 64 * 1024;
const FILTERS = [["all", "All"], ["running", "Running"], ["failed", "Failed"]] as const;

export function Commands({ id, entries, hasOlder }: { id: string; entries: Entry[]; hasOlder: boolean }) {
  const { query } = useAddress();
  const filter = query.get("commands") ?? "all";
  const calls = entries.filter((entry) => entry.kind === "call");
  const shown = calls.filter((entry) => {
    const { word, tone } = callState(entry.call);
    return filter === "running" ? word === "running" || word === "open" : filter === "failed" ? tone === "bad" : true;
  });
  return (
    <div className="stack commands">
      <div className="row">
        {FILTERS.map(([name, word]) => (
          <button key={name} type="button" className="chip" aria-pressed={filter === name} onClick={() => setQuery({ commands: name === "all" ? null : name })}>{word}</button>
        ))}
        <span className="spring" />
        <span className="meta">{shown.length} of {calls.length}{hasOlder ? " read so far" : ""}</span>
      </div>
      {shown.length === 0 && <Empty title={calls.length === 0 ? "No command has run yet" : "No command matches"} />}
      <ol className="command-list">
        {shown.map((entry) => <CommandRow key={entry.id} id={id} entry={entry} />)}
      </ol>
    </div>
  );
}

function CommandRow({ id, entry }: { id: string; entry: Extract<Entry, { kind: "call" }> }) {
  const { call } = entry;
  const { word, tone } = callState(call);
  const input = (call.use.input ?? {}) as Record<string, unknown>;
  const output = call.result ? blocks(call.result.content).text : "";
  return (
    <li>
      <details>
        <summary>
          <code className="name">{inertLine(text(call.use.name), 24)}</code>
          <code className="brief">{briefOf(call)}</code>
          <span className={`state ${tone}`}>{word}</span>
          <span className="meta mono">{durationOf(call)}</span>
        </summary>
        <div className="call-body">
          <div className="row meta">
            <Clock at={entry.at} />
            <span className="spring" />
            {typeof input.command === "string" && <Copy value={input.command} what="command" />}
            <Button className="button small" onPress={() => setQuery({ sel: entry.id, at: String(entry.seq), panel: null }, "push")}>Show in the conversation</Button>
          </div>
          {output && <LongText value={output} className="code" />}
          {call.result && text(call.use.name) === "bash" && <FullOutput id={id} call={call.use.id} />}
        </div>
      </details>
    </li>
  );
}

/** The output as it was kept, piece by piece: it may be very large. */
function FullOutput({ id, call }: { id: string; call: string }) {
  const [pieces, setPieces] = useState<string[]>([]);
  const [total, setTotal] = useState<number | null>(null);
  const [from, setFrom] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const path = sessionPath(id, `/outputs/${call}`);
  const read = async () => {
    setError(null);
    try {
      const response = await fetchRaw(path, { headers: { range: `bytes=${from}-${from + PIECE - 1}` } });
      const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
      const bytes = new Uint8Array(await response.arrayBuffer());
      setPieces((pieces) => [...pieces, new TextDecoder().decode(bytes)]);
      setTotal(range ? Number(range[1]) : bytes.length);
      setFrom((from) => from + bytes.length);
    } catch (error) {
      setError(error);
    }
  };
  if (error instanceof Failure && error.code === "output_not_found") return <p className="meta">The output above is all of it.</p>;
  return (
    <div className="stack">
      {pieces.map((piece, index) => <LongText key={index} value={piece} className="code" />)}
      {Boolean(error) && <Problem error={error} what="The full output cannot be read" />}
      {(total === null || from < total) && (
        <Button className="button small" onPress={() => void read()}>
          {total === null ? "Read the full output" : `Read on (${size(from)} of ${size(total)})`}
        </Button>
      )}
    </div>
  );
}
