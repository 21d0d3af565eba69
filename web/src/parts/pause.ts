// Pause of everything live on this page: nothing moves and nothing is read until it is ended.
import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let paused = false;

export const pause = {
  get: (): boolean => paused,
  set(value: boolean): void {
    paused = value;
    listeners.forEach((listener) => listener());
  },
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

export const usePaused = (): boolean => useSyncExternalStore(pause.subscribe, pause.get);
