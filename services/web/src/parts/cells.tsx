// Many equal things as small squares, in the order of their numbers: slots, subtasks. Squares of one colour are one path
// of SVG, so ten thousand are drawn as fast as ten.

const STEP = 10;
const SIZE = 8;

export interface CellsProps {
  /** The class of each square. */
  readonly classes: readonly string[];
  /** The number of squares in a row. */
  readonly columns: number;
  /** What a screen reader says. */
  readonly label: string;
  /** Returns the text beside the pointer for a square. */
  readonly describe?: (index: number) => string;
}

export function Cells({ classes, columns, label, describe }: CellsProps) {
  const rows = Math.ceil(classes.length / columns);
  const used = Math.min(columns, Math.max(classes.length, 1));
  const width = used * STEP - (STEP - SIZE);
  const height = Math.max(1, rows * STEP - (STEP - SIZE));
  const paths = new Map<string, string[]>();
  classes.forEach((name, index) => {
    const x = (index % columns) * STEP;
    const y = Math.floor(index / columns) * STEP;
    const path = paths.get(name) ?? [];
    path.push(`M${x} ${y}h${SIZE}v${SIZE}h-${SIZE}z`);
    paths.set(name, path);
  });
  return (
    <svg
      class="cells"
      role="img"
      aria-label={label}
      viewBox={`0 0 ${width} ${height}`}
      width={width * 1.6}
      onPointerMove={(event) => {
        if (describe === undefined) return;
        const box = event.currentTarget.getBoundingClientRect();
        const column = Math.floor(((event.clientX - box.left) / box.width) * used);
        const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
        const index = row * columns + column;
        const title = event.currentTarget.querySelector("title");
        if (title !== null) title.textContent = index < classes.length ? describe(index) : label;
      }}
    >
      <title>{label}</title>
      {[...paths].map(([name, path]) => (
        <path key={name} class={name} d={path.join("")} />
      ))}
    </svg>
  );
}
