// Whether the page can be seen. In a hidden tab it reads nothing.

import { signal } from "@preact/signals";

export const isVisible = signal(document.visibilityState === "visible");

document.addEventListener("visibilitychange", () => {
  isVisible.value = document.visibilityState === "visible";
});
