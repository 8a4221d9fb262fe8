// Where the vertices of a job are drawn: dagre's layered layout, from sources to sinks.

import dagre from "@dagrejs/dagre";

export interface Node {
  readonly id: string;
  readonly inputs: readonly { readonly id: string; readonly label: string }[];
}

export interface PlacedNode {
  readonly id: string;
  readonly left: number;
  readonly top: number;
}

export interface PlacedEdge {
  readonly key: string;
  readonly label: string;
  /** A path of SVG. */
  readonly path: string;
  readonly labelLeft: number;
  readonly labelTop: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly PlacedNode[];
  readonly edges: readonly PlacedEdge[];
}

export interface LayoutOptions {
  readonly nodeWidth: number;
  readonly nodeHeight: number;
  readonly isVertical: boolean;
}

const LABEL_WIDTH = 70;
const LABEL_HEIGHT = 18;

export function layOut(nodes: readonly Node[], { nodeWidth, nodeHeight, isVertical }: LayoutOptions): Layout {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({
    rankdir: isVertical ? "TB" : "LR",
    nodesep: 28,
    ranksep: isVertical ? 28 : 40,
    marginx: 4,
    marginy: 4,
  });
  for (const { id } of nodes) graph.setNode(id, { width: nodeWidth, height: nodeHeight });
  for (const node of nodes) {
    node.inputs.forEach((input, place) => {
      const label = { label: input.label, width: LABEL_WIDTH, height: LABEL_HEIGHT, labelpos: "c" };
      graph.setEdge(input.id, node.id, label, String(place));
    });
  }
  dagre.layout(graph);
  const size = graph.graph();
  return {
    width: size.width ?? 0,
    height: size.height ?? 0,
    nodes: nodes.map(({ id }) => {
      const { x, y } = graph.node(id);
      return { id, left: x - nodeWidth / 2, top: y - nodeHeight / 2 };
    }),
    edges: graph.edges().map((edge) => {
      const { points, label, x, y } = graph.edge(edge);
      return {
        key: `${edge.v} ${edge.w} ${edge.name}`,
        label: String(label ?? ""),
        path: toPath(points),
        labelLeft: x ?? 0,
        labelTop: y ?? 0,
      };
    }),
  };
}

/** Returns a smooth path through the points: curves between the middles of the lines. */
function toPath(points: readonly { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let path = `M${first.x} ${first.y}`;
  rest.forEach((point, place) => {
    const next = rest[place + 1];
    path +=
      next === undefined
        ? `L${point.x} ${point.y}`
        : `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`;
  });
  return path;
}
