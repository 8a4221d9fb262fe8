// The bearer token of this visit. It lives in the tab only: sessionStorage is empty in a new tab.

import { signal } from "@preact/signals";

const KEY = "tailrace.token";

export const token = signal<string | null>(sessionStorage.getItem(KEY));
/** Whether a request was refused for its token, or for having none. */
export const isTokenWanted = signal(false);

export function askForToken(): void {
  isTokenWanted.value = true;
}

export function setToken(text: string): void {
  sessionStorage.setItem(KEY, text);
  token.value = text;
  isTokenWanted.value = false;
}
