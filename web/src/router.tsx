// The address is the state: pages, selections and filters are read from it and written to it.
import { useMemo, useSyncExternalStore, type AnchorHTMLAttributes } from "react";

const listeners = new Set<() => void>();
const changed = () => listeners.forEach((listener) => listener());
addEventListener("popstate", changed);

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export function useAddress(): { path: string[]; query: URLSearchParams } {
  const href = useSyncExternalStore(subscribe, () => location.pathname + location.search);
  return useMemo(() => {
    const url = new URL(href, location.origin);
    return { path: url.pathname.split("/").filter(Boolean).map(decodeURIComponent), query: url.searchParams };
  }, [href]);
}

export function go(to: string, how: "push" | "replace" = "push"): void {
  if (to === location.pathname + location.search) return;
  history[how === "push" ? "pushState" : "replaceState"](null, "", to);
  changed();
}

/** Changes parameters of the address; null takes one away. */
export function setQuery(change: Record<string, string | null>, how: "push" | "replace" = "replace"): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), how);
}

export function Link({ to, onClick, ...rest }: { to: string } & AnchorHTMLAttributes<HTMLAnchorElement>) {
  return (
    <a
      {...rest}
      href={to}
      onClick={(event) => {
        onClick?.(event);
        const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
        if (!isPlain || event.defaultPrevented) return;
        event.preventDefault();
        go(to);
      }}
    />
  );
}
