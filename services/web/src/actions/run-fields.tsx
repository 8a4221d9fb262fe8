// What the two ways to submit a program ask alike: arguments, options, parallelism, and where its state comes from.

export interface RunForm {
  /** module:function */
  readonly target: string;
  readonly arguments: string;
  readonly options: string;
  readonly parallelism: string;
  readonly savepoint: string;
}

export const EMPTY_FORM: RunForm = { target: "", arguments: "", options: "", parallelism: "", savepoint: "" };

/** The values of a form; what is not given is null. */
export interface RunValues {
  readonly target: string | null;
  readonly arguments: string[];
  readonly options: Record<string, string>;
  readonly parallelism: number | null;
  readonly savepoint: string | null;
}

export function RunFields({
  form,
  isTargetOptional = false,
  onChange,
}: {
  form: RunForm;
  isTargetOptional?: boolean;
  onChange: (form: RunForm) => void;
}) {
  const change = (name: keyof RunForm) => (event: { currentTarget: { value: string } }) =>
    onChange({ ...form, [name]: event.currentTarget.value });
  return (
    <>
      <label>
        Function of the program
        <input
          required={!isTargetOptional}
          value={form.target}
          onInput={change("target")}
          placeholder={isTargetOptional ? "None: the file runs as a script" : "module:function"}
          pattern="[\w.]+:\w+"
          title="module:function, as in orders.count:main"
        />
      </label>
      <label>
        Arguments, one on each line
        <textarea rows={3} value={form.arguments} onInput={change("arguments")} />
      </label>
      <label>
        Options, key=value on each line
        <textarea rows={3} value={form.options} onInput={change("options")} />
      </label>
      <label>
        Parallelism
        <input
          type="number"
          min={1}
          value={form.parallelism}
          placeholder="parallelism.default"
          onInput={change("parallelism")}
        />
      </label>
      <label>
        Savepoint or checkpoint to start from
        <input value={form.savepoint} onInput={change("savepoint")} />
      </label>
    </>
  );
}

/** Returns the values of a form, or its fault. */
export function readForm(form: RunForm): RunValues | string {
  const options: Record<string, string> = {};
  for (const line of readLines(form.options)) {
    const place = line.indexOf("=");
    if (place < 1) return `An option is key=value; this line is not: ${line}`;
    options[line.slice(0, place).trim()] = line.slice(place + 1).trim();
  }
  return {
    target: form.target.trim() || null,
    arguments: readLines(form.arguments),
    options,
    parallelism: form.parallelism === "" ? null : Number(form.parallelism),
    savepoint: form.savepoint.trim() || null,
  };
}

function readLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}
