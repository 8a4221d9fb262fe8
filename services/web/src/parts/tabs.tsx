import { linkTo } from "../routing";

export interface Tab {
  /** The last part of the address; empty for the first tab. */
  readonly path: string;
  readonly title: string;
}

/** Links between the views of one thing. */
export function Tabs({
  base,
  tabs,
  current,
}: {
  base: readonly string[];
  tabs: readonly Tab[];
  current: string;
}) {
  return (
    <nav class="tabs" aria-label="Views">
      {tabs.map((tab) => (
        <a
          key={tab.path}
          href={linkTo(tab.path === "" ? base : [...base, tab.path])}
          aria-current={tab.path === current ? "page" : undefined}
        >
          {tab.title}
        </a>
      ))}
    </nav>
  );
}
