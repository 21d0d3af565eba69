// Who looks at the page, and what they may do.
import { createContext, useContext } from "react";
import type { Caller } from "./api/client";

export const CallerContext = createContext<Caller | null>(null);

export function useCaller(): Caller {
  const caller = useContext(CallerContext);
  if (!caller) throw new Error("a page without a login");
  return caller;
}
