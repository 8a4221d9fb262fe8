// Runs a simulation on the server, and follows it by server-sent events. It ends there when nobody follows it.

import { useEffect, useState } from "preact/hooks";
import { fillPath, RequestError, send } from "../api/client";
import type { WhatIfResult, WhatIfUpdate } from "../api/openapi";
import { readMessages } from "../api/server-sent-events";
import { token } from "../api/token";

export interface Simulation {
  /** null: the end of the log. */
  readonly at: string | null;
  readonly scenario: string;
}

export type Progress =
  | { readonly kind: "none" }
  | { readonly kind: "runs"; readonly read: number; readonly simulated: number }
  | { readonly kind: "done"; readonly result: WhatIfResult }
  | { readonly kind: "failed"; readonly error: string };

/** Runs a simulation while the component is shown; another one ends it. */
export function useSimulation(simulation: Simulation | null): Progress {
  const [progress, setProgress] = useState<Progress>({ kind: "none" });

  useEffect(() => {
    if (simulation === null) {
      setProgress({ kind: "none" });
      return;
    }
    const abort = new AbortController();
    setProgress({ kind: "runs", read: 0, simulated: 0 });
    run(simulation, abort.signal, setProgress).catch((error: unknown) => {
      if (abort.signal.aborted) return;
      setProgress({ kind: "failed", error: error instanceof Error ? error.message : String(error) });
    });
    return () => abort.abort();
  }, [simulation, token.value]);

  return progress;
}

async function run(
  { at, scenario }: Simulation,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void,
): Promise<void> {
  const url = fillPath("/api/v1/what-if", {}, { at: at ?? undefined, scenario });
  const { body } = await send("GET", url, undefined, signal, { Accept: "text/event-stream" });
  let isOver = false;
  if (body !== null) {
    await readMessages(body, (messages) => {
      for (const { data } of messages) {
        if (data === undefined || signal.aborted) continue;
        const update = toProgress(JSON.parse(data) as WhatIfUpdate);
        isOver = update.kind !== "runs";
        onProgress(update);
      }
    });
  }
  if (!isOver) throw new RequestError(0, "The simulation ended without a result: the connection is lost.");
}

function toProgress({ read, simulated, result, error }: WhatIfUpdate): Progress {
  if (error != null) return { kind: "failed", error };
  return result == null ? { kind: "runs", read, simulated } : { kind: "done", result };
}
