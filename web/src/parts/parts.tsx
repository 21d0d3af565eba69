// Small things that all pages use.
import { useEffect, useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { Button } from "react-aria-components";
import { Failure, serverNow, type Phase } from "../api/client";
import { clock, full, span } from "./format";
import { settings, useSetting } from "./settings";

const WORDS: Record<Phase, string> = {
  queued: "Queued", working: "Working", waiting: "Waiting", needs_you: "Needs you", backing_off: "Backing off",
  paused: "Paused", idle: "Idle", done: "Done", failed: "Failed", cancelled: "Cancelled",
};
export const PHASES = Object.keys(WORDS) as Phase[];
export const phaseWord = (phase: string): string => WORDS[phase as Phase] ?? phase;

const SHAPES: Record<Phase, ReactNode> = {
  queued: <circle cx="7" cy="7" r="5" />,
  working: <circle cx="7" cy="7" r="6" className="solid" />,
  waiting: <path d="M3 1h8M3 13h8M4 1c0 3 6 5 6 12M10 1c0 3-6 5-6 12" />,
  needs_you: <path d="M7 1l6 6-6 6-6-6z" />,
  backing_off: <path d="M1 7c1.5-4 3.5-4 6 0s4.500 4 6 0" />,
  paused: <path d="M4.500 2v10M9.500 2v10" />,
  idle: <path d="M3 7h8" />,
  done: <path d="M1.500 7.500l4 4 7-9" />,
  failed: <path d="M4.500 1h5l3.500 3.500v5L9.500 13h-5L1 9.500v-5zM5 5l4 4M9 5l-4 4" />,
  cancelled: <path d="M7 1a6 6 0 1 1 0 12A6 6 0 0 1 7 1zM3 11l8-8" />,
};

/** Shape, word and colour, in that order of importance. */
export function PhaseMark({ phase }: { phase: string }) {
  const known = phase as Phase;
  return (
    <span className={`phase phase-${phase}`}>
      <svg viewBox="0 0 14 14" aria-hidden="true">{SHAPES[known] ?? <circle cx="7" cy="7" r="3" />}</svg>
      {phaseWord(phase)}
    </span>
  );
}

/** Also without a secure context, where there is no clipboard for scripts. */
export function copyText(value: string): Promise<void> {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(value);
  const area = document.createElement("textarea");
  area.value = value;
  area.className = "off-screen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done ? Promise.resolve() : Promise.reject(new Error("the browser refused to copy"));
}

export function Copy({ value, what }: { value: string; what: string }) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (!said) return;
    const timer = setTimeout(() => setSaid(""), 1500);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <Button
      className="icon-button"
      aria-label={said || `Copy ${what}`}
      onPress={() => void copyText(value).then(() => setSaid("Copied"), () => setSaid("Could not copy"))}
    >
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {said === "Copied" ? <path d="M2.500 8.500l4 4 7-9" /> : <path d="M5.500 5.500v-3h8v8h-3M2.500 5.500h8v8h-8z" />}
      </svg>
    </Button>
  );
}

// One clock for the whole page, so that it wakes once a second and not at all while hidden.
const tickListeners = new Set<() => void>();
let now = serverNow();
setInterval(() => {
  if (document.visibilityState === "hidden" || tickListeners.size === 0) return;
  now = serverNow();
  tickListeners.forEach((listener) => listener());
}, 1000);
export function useNow(): number {
  return useSyncExternalStore(
    (listener) => {
      // Not for each reader: a clock that moves while it is read would never stand still.
      if (serverNow() - now > 1000) now = serverNow();
      tickListeners.add(listener);
      return () => tickListeners.delete(listener);
    },
    () => now,
  );
}

export function Clock({ at }: { at: string | null | undefined }) {
  const zone = useSetting(settings.zone);
  if (!at) return null;
  return <time dateTime={at} title={full(at, zone)}>{clock(at, zone)}</time>;
}

/** Relative below a day, absolute beyond. */
export function Ago({ at }: { at: string | null | undefined }) {
  const zone = useSetting(settings.zone);
  const current = useNow();
  if (!at) return <span>—</span>;
  const age = current - Date.parse(at);
  const shown = age < 86_400_000 ? span(Math.max(0, Math.floor(age / 1000) * 1000)) : full(at, zone).slice(0, 10);
  return <time dateTime={at} title={full(at, zone)}>{shown}</time>;
}

export function Problem({ error, retry, what }: { error: unknown; retry?: () => void; what: string }) {
  const failure = error instanceof Failure ? error : null;
  return (
    <div className="problem" role="alert">
      <strong>{what}</strong>
      <p>{failure?.message ?? String(error)} {failure?.hint}</p>
      <div className="row">
        {retry && <Button className="button" onPress={retry}>Try again</Button>}
        {failure?.requestId && (
          <span className="meta mono">{failure.code} · {failure.requestId} <Copy value={failure.requestId} what="request id" /></span>
        )}
      </div>
    </div>
  );
}

/** Shown only when it takes long enough to be noticed. */
export function Loading({ lines = 3 }: { lines?: number }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="loading" aria-busy="true">
      <span className="off-screen" role="status">{late ? "Loading" : ""}</span>
      {late && Array.from({ length: lines }, (_, line) => <div key={line} className="bone" />)}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <svg viewBox="0 0 120 72" aria-hidden="true"><path d="M8 20h40M60 20h52M8 36h20M40 36h64M8 52h56M76 52h12" /></svg>
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** Keeps a value over renders without being a reason for one. */
export function useLatest<T>(value: T): { readonly current: T } {
  const kept = useRef(value);
  kept.current = value;
  return kept;
}
