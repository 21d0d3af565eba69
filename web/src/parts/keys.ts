// Single keys. They are silent while somebody writes, can be turned off, and none of them does
// something that cannot be undone.
import { useEffect } from "react";
import { useLatest } from "./parts";
import { settings } from "./settings";

export function useKeys(keys: Record<string, () => void>): void {
  const latest = useLatest(keys);
  useEffect(() => {
    let prefix = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const listen = (event: KeyboardEvent) => {
      if (settings.keys.get() === "off" || event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) return;
      const target = event.target as HTMLElement;
      if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest("[role=dialog]")) return;
      const pressed = prefix + event.key;
      prefix = "";
      clearTimeout(timer);
      const action = latest.current[pressed];
      if (action) {
        event.preventDefault();
        action();
      } else if (Object.keys(latest.current).some((key) => key.length > 1 && key.startsWith(event.key) && key.includes(" "))) {
        prefix = `${event.key} `;
        timer = setTimeout(() => (prefix = ""), 1000);
      }
    };
    addEventListener("keydown", listen);
    return () => {
      clearTimeout(timer);
      removeEventListener("keydown", listen);
    };
  }, [latest]);
}
