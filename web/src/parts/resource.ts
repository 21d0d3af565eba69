// Something that is read from the server, kept while it is read again, and read again when told.
import { useCallback, useEffect, useRef, useState } from "react";
import { Failure, get } from "../api/client";
import { feed } from "../feed/feed";
import { pause } from "./pause";

export type Resource<T> = { data: T | undefined; error: unknown; loading: boolean; asOf: number | null; reload: () => void };

/** Reads again at most so often, however much changes. */
const LEAST_MS = 1000;

export function useResource<T>(path: string | null, how: { fleet?: boolean; everyMs?: number } = {}): Resource<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; error: unknown; asOf: number | null }>({ path: null, error: null, asOf: null });
  const [turn, setTurn] = useState(0);
  const last = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const reload = useCallback(() => setTurn((turn) => turn + 1), []);
  const soon = useCallback(() => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => !pause.get() && setTurn((turn) => turn + 1), Math.max(0, LEAST_MS - (Date.now() - last.current)));
  }, []);

  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    last.current = Date.now();
    get<T>(path, abort.signal).then(
      (data) => setState({ path, data, error: null, asOf: Date.now() }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        // The last good rows stay.
        setState((before) => ({ ...(before.path === path ? before : { asOf: null }), path, error }));
        if (error instanceof Failure && (error.isAway || error.status >= 500)) timer.current = setTimeout(reload, 3000);
      },
    );
    return () => abort.abort();
  }, [path, turn, reload]);

  useEffect(() => (how.fleet && path ? feed.read("fleet", null, soon) : undefined), [how.fleet, path, soon]);
  useEffect(() => {
    if (!how.everyMs || path === null) return;
    const every = setInterval(() => document.visibilityState === "visible" && !pause.get() && reload(), how.everyMs);
    return () => clearInterval(every);
  }, [how.everyMs, path, reload]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const isCurrent = state.path === path;
  return { data: isCurrent ? state.data : undefined, error: isCurrent ? state.error : null, loading: !isCurrent, asOf: state.asOf, reload };
}
