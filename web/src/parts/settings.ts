// What a person set on this browser.
import { useSyncExternalStore } from "react";
import type { Zone } from "./format";

export type Setting<T extends string> = { get(): T; set(value: T): void; subscribe(listener: () => void): () => void };

function setting<T extends string>(name: string, first: T, values: readonly T[]): Setting<T> {
  const key = `tenure.${name}`;
  const listeners = new Set<() => void>();
  const read = (): T => {
    try {
      const kept = localStorage.getItem(key) as T | null;
      return kept !== null && values.includes(kept) ? kept : first;
    } catch {
      return first;
    }
  };
  let value = read();
  addEventListener("storage", (event) => {
    if (event.key !== key) return;
    value = read();
    listeners.forEach((listener) => listener());
  });
  return {
    get: () => value,
    set(next) {
      value = next;
      try {
        localStorage.setItem(key, next);
      } catch {
        // It holds until the page is left.
      }
      listeners.forEach((listener) => listener());
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export const settings = {
  theme: setting<"light" | "dark" | "system">("theme", "system", ["light", "dark", "system"]),
  zone: setting<Zone>("zone", "local", ["local", "utc"]),
  keys: setting<"on" | "off">("keys", "on", ["on", "off"]),
};

export function useSetting<T extends string>(of: Setting<T>): T {
  return useSyncExternalStore(of.subscribe, of.get);
}

const system = matchMedia("(prefers-color-scheme: dark)");
export function applyTheme(): void {
  const wanted = settings.theme.get();
  const dark = wanted === "dark" || (wanted === "system" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}
settings.theme.subscribe(applyTheme);
system.addEventListener("change", applyTheme);
