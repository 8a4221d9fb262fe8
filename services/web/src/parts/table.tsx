import type { ComponentChildren } from "preact";

/** A table in a card. If it is wider than its place, it scrolls inside of it, also by the keyboard. */
export function TableCard({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
    <section class="card scroll" aria-label={label} tabIndex={0}>
      <table>{children}</table>
    </section>
  );
}
