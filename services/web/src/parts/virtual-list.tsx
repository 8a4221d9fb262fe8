// A long list of rows of one height: only those that can be seen, and some around them, are in the document.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

const BEYOND = 10;

export interface VirtualListProps<Item> {
  readonly items: readonly Item[];
  /** In pixels. */
  readonly rowHeight: number;
  /** The largest height of the list, in pixels. */
  readonly maxHeight: number;
  readonly label: string;
  readonly children: (item: Item, index: number) => ComponentChildren;
}

export function VirtualList<Item>({ items, rowHeight, maxHeight, label, children }: VirtualListProps<Item>) {
  const box = useRef<HTMLUListElement>(null);
  const [top, setTop] = useState(0);
  const first = Math.max(0, Math.floor(top / rowHeight) - BEYOND);
  const last = Math.min(items.length, Math.ceil((top + maxHeight) / rowHeight) + BEYOND);

  useLayoutEffect(() => {
    // A list that has become shorter is scrolled by the browser itself.
    if (box.current !== null) setTop(box.current.scrollTop);
  }, [items.length]);

  return (
    <ul
      ref={box}
      class="virtual"
      aria-label={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
      tabIndex={0}
      style={{ maxHeight: `${maxHeight}px` }}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <li aria-hidden="true" style={{ height: `${first * rowHeight}px` }} />
      {items.slice(first, last).map((item, index) => (
        <li
          key={first + index}
          aria-setsize={items.length}
          aria-posinset={first + index + 1}
          style={{ height: `${rowHeight}px` }}
        >
          {children(item, first + index)}
        </li>
      ))}
      <li aria-hidden="true" style={{ height: `${(items.length - last) * rowHeight}px` }} />
    </ul>
  );
}
