// Dark or light: as the system has it, until the user chooses.

import { effect, signal } from "@preact/signals";

export type Theme = "light" | "dark";

const KEY = "tailrace.theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme | null {
  const text = localStorage.getItem(KEY);
  return text === "light" || text === "dark" ? text : null;
}

export const theme = signal<Theme>(chosen() ?? (prefersDark.matches ? "dark" : "light"));

prefersDark.addEventListener("change", () => {
  theme.value = chosen() ?? (prefersDark.matches ? "dark" : "light");
});

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

export function switchTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme.value);
}
