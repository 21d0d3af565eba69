// A new session from this conversation up to some event, and from files of some moment: two cursors.
import { useState } from "react";
import { Button, Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";
import { post, sessionPath, type Page, type Session } from "../api/client";
import { Problem } from "../parts/parts";
import { useResource } from "../parts/resource";
import { inertLine } from "../parts/text";
import { plural, size } from "../parts/format";
import { go } from "../router";
import { blocks, text, type Entry } from "./entries";
import { briefOf } from "./Conversation";

type Snapshot = { id: string; seq: number; bytes: number; created_at: string };
type Diff = { data: unknown[]; is_cut: boolean };

/** Calls after the cut that are named. */
const NAMED = 8;
/** Tools that change nothing. */
const PURE = new Set(["read", "glob", "grep", "sleep", "create_callback", "wait_for_callback", "ask_user"]);

export function Fork({ session, entries, lastSeq, start, close }: { session: Session; entries: Entry[]; lastSeq: number; start: number; close: () => void }) {
  const [at, setAt] = useState(Math.min(start, lastSeq));
  const [files, setFiles] = useState("same");
  const [title, setTitle] = useState(session.title ?? "");
  const [replaces, setReplaces] = useState(false);
  const [message, setMessage] = useState(() => lastMessage(entries, start));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const snapshots = useResource<Page<Snapshot>>(sessionPath(session.id, "/snapshots?limit=50"));
  // What differs is only told where there is a stored state to compare.
  const stored = snapshots.data?.data ?? [];
  const from = files === "same" ? stored.find((snapshot) => snapshot.seq <= at)?.id : files.startsWith("snap_") ? files : undefined;
  const diff = useResource<Diff>(from ? sessionPath(session.id, `/diff?from=${from}`) : null);

  const later = entries.filter((entry) => entry.seq !== null && entry.seq > at);
  const messages = later.filter((entry) => entry.kind === "message").length;
  const happened = later.filter((entry): entry is Extract<Entry, { kind: "call" }> => entry.kind === "call" && !PURE.has(text(entry.call.use.name)) && entry.call.result !== null);
  const fork = async () => {
    setBusy(true);
    setError(null);
    try {
      const body = { at_seq: at, files, title, ...(replaces ? { replace_last_input: message } : {}) };
      const made = await post<Session>(sessionPath(session.id, "/fork"), body);
      go(`/sessions/${made.id}`);
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  return (
    <ModalOverlay className="overlay" isOpen isDismissable onOpenChange={(open) => !open && close()}>
      <Modal className="modal wide">
        <Dialog className="dialog fork">
          <Heading slot="title">Fork this session</Heading>
          <p className="meta">A new session begins with what you choose here. This one goes on as it is.</p>
          <div className="fork-cursors">
            <label className="stack">
              <span>Conversation up to event</span>
              <span className="row">
                <input type="range" min={0} max={lastSeq} value={at} onChange={(event) => setAt(Number(event.target.value))} aria-label="Last event that both have" />
                <input type="number" min={0} max={lastSeq} value={at} onChange={(event) => setAt(Math.max(0, Math.min(lastSeq, Number(event.target.value) || 0)))} aria-label="Number of that event" />
              </span>
              <span className="meta">{at === 0 ? "No conversation." : at === lastSeq ? "All of it." : shownAt(entries, at)}</span>
            </label>
            <label className="stack">
              <span>Files</span>
              <select value={files} onChange={(event) => setFiles(event.target.value)}>
                <option value="same">As that event saw them</option>
                <option value="latest">The newest stored ones</option>
                <option value="none">None</option>
                {stored.map((snapshot) => (
                  <option key={snapshot.id} value={snapshot.id}>
                    Snapshot of event {snapshot.seq} ({size(snapshot.bytes)})
                  </option>
                ))}
              </select>
              <span className="meta">
                {files === "none" ? "The workspace is empty." : diff.data ? `${plural(diff.data.data.length, "entry").replace("entrys", "entries")}${diff.data.is_cut ? " and more" : ""} of the files differ from now.` : "What is not stored is named to the agent."}
              </span>
            </label>
          </div>
          <label className="stack">
            <span>Title</span>
            <input value={title} maxLength={512} onChange={(event) => setTitle(event.target.value)} />
          </label>
          <label className="row tight">
            <input type="checkbox" checked={replaces} onChange={(event) => setReplaces(event.target.checked)} />
            <span>Say the newest message of a person differently, and begin at once</span>
          </label>
          {replaces && <textarea rows={3} value={message} onChange={(event) => setMessage(event.target.value)} aria-label="The message instead of the newest one" />}
          <div className="fork-preview" aria-live="polite">
            <p>
              {later.length === 0 ? "Nothing is left out." : `${plural(messages, "message")} left out.`} Open questions, waits and callbacks stay with this session.
              Use starts at zero, with what is left of the limits.
            </p>
            {happened.length > 0 && (
              <div className="note bad stack">
                <span>Already happened, and is not undone by a fork:</span>
                <ul>
                  {happened.slice(0, NAMED).map((entry) => (
                    <li key={entry.id}>
                      <code>{inertLine(text(entry.call.use.name), 40)} {briefOf(entry.call)}</code>
                    </li>
                  ))}
                </ul>
                {happened.length > NAMED && <span>and {happened.length - NAMED} more</span>}
              </div>
            )}
          </div>
          {Boolean(error) && <Problem error={error} what="The session was not forked" />}
          <div className="row end">
            <Button className="button" onPress={close}>Keep as it is</Button>
            <Button className="button primary" autoFocus isDisabled={busy || (replaces && message.trim() === "")} onPress={() => void fork()}>
              Fork
            </Button>
          </div>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

/** What stands at the cut, in a few words. */
function shownAt(entries: Entry[], at: number): string {
  const entry = [...entries].reverse().find((entry) => entry.seq !== null && entry.seq <= at);
  if (!entry) return "Before what is shown here.";
  if (entry.kind === "message") return `After what ${entry.who === "user" ? "a person" : entry.who} said: ${inertLine(entry.text, 80)}`;
  if (entry.kind === "call") return `After ${inertLine(text(entry.call.use.name), 40)} ${briefOf(entry.call).slice(0, 60)}`;
  if (entry.kind === "note") return `After: ${inertLine(entry.text, 80)}`;
  return `After event ${entry.seq}.`;
}

function lastMessage(entries: Entry[], at: number): string {
  const said = [...entries].reverse().find((entry) => entry.kind === "message" && entry.who === "user" && entry.seq !== null && entry.seq <= at);
  return said?.kind === "message" ? said.text : blocks(undefined).text;
}
