// A message to the session: it works while the session waits, and says what becomes of it.
import { useEffect, useState } from "react";
import { Button } from "react-aria-components";
import { post, sessionPath, type Page, type Session, type WireEvent } from "../api/client";
import { useCaller } from "../caller";
import { Problem } from "../parts/parts";
import type { SessionModel } from "./model";

const FATE: Record<string, string> = {
  idle: "Starts a new turn.",
  working: "Queued; the agent takes it at its next step.",
  queued: "Queued; the agent takes it at its next step.",
  waiting: "Queued; the agent takes it when its wait ends.",
  backing_off: "Queued; the agent takes it when the model answers again.",
  needs_you: "Queued; the agent takes it after the open question is answered.",
  paused: "Queued; the agent takes it after Resume.",
};
const INTERRUPTIBLE = new Set(["working", "queued", "waiting", "backing_off", "needs_you"]);

export function Composer({ model, session, phase, refresh }: { model: SessionModel; session: Session | undefined; phase: string; refresh: () => void }) {
  const caller = useCaller();
  const key = `tenure.draft.${model.id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(key) ?? "");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (text) sessionStorage.setItem(key, text);
    else sessionStorage.removeItem(key);
  }, [key, text]);
  if (!session) return null;
  if (["done", "failed", "cancelled"].includes(phase)) return <p className="composer meta">This session has ended. It stays readable.</p>;
  if (caller.scope === "read") return <p className="composer meta">This login may only look.</p>;
  const send = async (event: Record<string, unknown>) => {
    setBusy(true);
    setError(null);
    try {
      const page = await post<Page<WireEvent>>(sessionPath(model.id, "/events"), { events: [event] });
      model.sent(page.data);
      refresh();
      return true;
    } catch (error) {
      setError(error);
      return false;
    } finally {
      setBusy(false);
    }
  };
  const say = async () => {
    if (text.trim() === "" || busy) return;
    if (await send({ type: "user.message", content: [{ type: "text", text }] })) setText("");
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void say();
      }}
    >
      <textarea
        aria-label="Message to the agent"
        placeholder="Message to the agent"
        rows={2}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            void say();
          }
        }}
      />
      <div className="row">
        <span className="meta">{FATE[phase] ?? "Queued."}</span>
        <span className="spring" />
        {INTERRUPTIBLE.has(phase) && <Button className="button" isDisabled={busy} onPress={() => void send({ type: "user.interrupt" })}>Interrupt</Button>}
        <Button className="button primary" type="submit" isDisabled={busy || text.trim() === ""}>Send</Button>
      </div>
      {Boolean(error) && <Problem error={error} what="The message was not taken; it is still here" />}
    </form>
  );
}
