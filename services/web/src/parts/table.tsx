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

/** The title of a column; `number`: of one whose values stand at the right. */
export type Column = string | { readonly number: string };

/** The head of a table: one row with the titles of its columns. */
export function TableHead({ columns }: { columns: readonly Column[] }) {
  return (
    <thead>
      <tr>
        {columns.map((column) =>
          typeof column === "string" ? (
            <th key={column} scope="col">
              {column}
            </th>
          ) : (
            <th key={column.number} scope="col" class="right">
              {column.number}
            </th>
          ),
        )}
      </tr>
    </thead>
  );
}
