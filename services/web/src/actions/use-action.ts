// A request that changes something, as a user's click: it is sent once, also if the click or the request is repeated.

import { useRef, useState } from "preact/hooks";
import { send, upload } from "../api/client";

export type ActionState =
  | { readonly kind: "ready" }
  /** `share`: the share of a file that is sent, 0 to 1. */
  | { readonly kind: "sent"; readonly share?: number }
  | { readonly kind: "done"; readonly text: string; readonly offset: number | null }
  | { readonly kind: "failed"; readonly text: string };

export interface Request {
  readonly method: "POST" | "PATCH" | "DELETE";
  readonly url: string;
  readonly body?: unknown;
}

export interface Action {
  readonly state: ActionState;
  /** Sends a request; `describe` says in a sentence what its answer means. */
  readonly run: (request: Request, describe: (answer: unknown) => string) => Promise<void>;
  /** Shows why no request is sent. */
  readonly fail: (text: string) => void;
}

/** Returns an action without a request. A request that failed is sent again under the same key, so it is one. */
export function useAction(): Action {
  const [state, setState] = useState<ActionState>({ kind: "ready" });
  const key = useRef<{ request: string; key: string } | null>(null);

  const run: Action["run"] = async (request, describe) => {
    const text = describeRequest(request);
    if (key.current?.request !== text) key.current = { request: text, key: newKey() };
    setState({ kind: "sent" });
    try {
      const { method, url, body } = request;
      const headers = { "Idempotency-Key": key.current.key };
      const response =
        body instanceof FormData
          ? await upload(url, body, headers, (share) => setState({ kind: "sent", share }))
          : await send(method, url, body, undefined, headers);
      const offset = response.headers.get("Tailrace-Offset");
      const answer: unknown = await response.json();
      key.current = null;
      setState({ kind: "done", text: describe(answer), offset: offset === null ? null : Number(offset) });
    } catch (error) {
      setState({ kind: "failed", text: error instanceof Error ? error.message : String(error) });
    }
  };
  return { state, run, fail: (text) => setState({ kind: "failed", text }) };
}

/** Returns a text that differs for different requests. */
function describeRequest({ method, url, body }: Request): string {
  return JSON.stringify([method, url, body instanceof FormData ? [...body].map(describeField) : body]);
}

function describeField([name, value]: [string, FormDataEntryValue]): unknown[] {
  return typeof value === "string" ? [name, value] : [name, value.name, value.size, value.lastModified];
}

/** crypto.randomUUID exists only for https and loopback addresses. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}
