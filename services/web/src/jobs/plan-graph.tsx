// The plan of a job as a graph: a card for each vertex, from sources to sinks.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { JobPlan } from "../api/openapi";
import { useWidth } from "../parts/use-width";
import { type Layout, layOut } from "./graph-layout";

type Plan = JobPlan["plan"];

const NODE_WIDTH = 250;
const VERTICAL_BELOW = 700;

/** `toneOfVertex` and the children get the id of a vertex. */
export function PlanGraph({
  plan,
  nodeHeight,
  label,
  toneOfVertex = () => "",
  children,
}: {
  plan: Plan;
  /** In pixels. */
  nodeHeight: number;
  label: string;
  toneOfVertex?: (id: string) => string;
  children: (id: string) => ComponentChildren;
}) {
  const [box, width] = useWidth<HTMLElement>();
  const isVertical = width > 0 && width < VERTICAL_BELOW;
  const layout = useLayout(plan, isVertical, nodeHeight);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
    <section ref={box} class="card graph" aria-label={label} tabIndex={0}>
      <div class="plan" style={{ width: `${layout.width}px`, height: `${layout.height}px` }}>
        <Edges layout={layout} />
        {layout.nodes.map(({ id, left, top }) => (
          <article
            key={id}
            class={`vertex ${toneOfVertex(id)}`}
            style={{
              left: `${left}px`,
              top: `${top}px`,
              width: `${NODE_WIDTH}px`,
              height: `${nodeHeight}px`,
            }}
          >
            {children(id)}
          </article>
        ))}
      </div>
    </section>
  );
}

/** A plan begins with the sinks. */
function useLayout(plan: Plan, isVertical: boolean, nodeHeight: number): Layout {
  const nodes = [...plan.nodes].reverse().map((node) => ({
    id: node.id,
    inputs: (node.inputs ?? []).map((input) => ({ id: input.id, label: input.ship_strategy.toLowerCase() })),
  }));
  const shape = JSON.stringify(nodes);
  return useMemo(
    () => layOut(nodes, { nodeWidth: NODE_WIDTH, nodeHeight, isVertical }),
    [shape, isVertical, nodeHeight],
  );
}

function Edges({ layout }: { layout: Layout }) {
  return (
    <svg class="edges" width={layout.width} height={layout.height} aria-hidden="true">
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0L8 4L0 8z" />
        </marker>
      </defs>
      {layout.edges.map((edge) => (
        <g key={edge.key}>
          <path class="edge" d={edge.path} marker-end="url(#arrow)" />
          <text x={edge.labelLeft} y={edge.labelTop - 6}>
            {edge.label}
          </text>
        </g>
      ))}
    </svg>
  );
}
