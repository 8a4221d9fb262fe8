// Uploaded programs: adds one, lists them, deletes one. The chosen one is planned and run.

import { useState } from "preact/hooks";
import { fillPath } from "../api/client";
import type { ProgramFile, UploadResult } from "../api/openapi";
import { useQuery } from "../api/use-query";
import { formatExactTime, formatTime } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { TableCard } from "../parts/table";
import { linkTo } from "../routing";
import { ActionOutcome } from "./action-outcome";
import { ConfirmDialog } from "./confirm-dialog";
import { ProgramForm } from "./program-form";
import { useAction } from "./use-action";

const REFRESH_MS = 5_000;

/** `chosen`: the id of a program. */
export function ProgramsView({ chosen }: { chosen: string | null }) {
  const [changes, setChanges] = useState(0);
  const programs = useQuery("/v1/jars", {}, { refresh: REFRESH_MS, hasMoment: false, changes });
  const countChange = () => setChanges((count) => count + 1);
  return (
    <>
      <UploadForm onUpload={countChange} />
      <Loaded query={programs}>
        {({ files }) => {
          const found = files.find((each) => each.id === chosen);
          return (
            <>
              <Programs files={files} chosen={chosen} onDelete={countChange} />
              {found !== undefined && <ProgramForm key={found.id} program={found} />}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function UploadForm({ onUpload }: { onUpload: () => void }) {
  const action = useAction();

  const upload = (event: SubmitEvent): void => {
    event.preventDefault();
    const body = new FormData(event.currentTarget as HTMLFormElement);
    void action.run({ method: "POST", url: fillPath("/v1/jars/upload"), body }, (answer) => {
      const id = (answer as UploadResult).filename.split("/").at(-1) ?? "";
      onUpload();
      location.hash = linkTo(["submit", "programs", id]);
      return "The program is uploaded.";
    });
  };

  return (
    <form class="card fields" onSubmit={upload}>
      <label>
        File: .py, a zip archive of modules, or a wheel
        <input type="file" name="jarfile" required accept=".py,.zip,.whl" />
      </label>
      <div class="buttons">
        <button type="submit" class="primary" disabled={action.state.kind === "sent"}>
          Upload
        </button>
      </div>
      <ActionOutcome state={action.state} />
    </form>
  );
}

function Programs({
  files,
  chosen,
  onDelete,
}: {
  files: readonly ProgramFile[];
  chosen: string | null;
  onDelete: () => void;
}) {
  const [question, setQuestion] = useState<ProgramFile | null>(null);
  const action = useAction();

  const remove = (program: ProgramFile) =>
    action.run({ method: "DELETE", url: fillPath("/v1/jars/{jarid}", { jarid: program.id }) }, () => {
      onDelete();
      if (program.id === chosen) location.hash = linkTo(["submit", "programs"]);
      return `The program ${program.name} is deleted.`;
    });

  return (
    <>
      <h2>Programs</h2>
      {files.length === 0 ? (
        <Empty>No program is uploaded.</Empty>
      ) : (
        <TableCard label="Programs">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Uploaded</th>
              <th scope="col">SHA-256</th>
              <th scope="col">
                <span class="hidden-text">Delete</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {files.map((each) => (
              <tr key={each.id}>
                <td>
                  <a
                    href={linkTo(["submit", "programs", each.id])}
                    aria-current={each.id === chosen ? "true" : undefined}
                  >
                    {each.name}
                  </a>
                </td>
                <td class="nowrap" title={formatExactTime(each.uploaded)}>
                  {formatTime(each.uploaded)}
                </td>
                <td>
                  <code title={each.id.slice(0, 64)}>{each.id.slice(0, 12)}</code>
                </td>
                <td class="right">
                  <button
                    type="button"
                    class="danger"
                    aria-label={`Delete ${each.name}`}
                    disabled={action.state.kind === "sent"}
                    onClick={() => setQuestion(each)}
                  >
                    Delete…
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </TableCard>
      )}
      <ActionOutcome state={action.state} />
      {question !== null && (
        <ConfirmDialog
          title="Delete the program?"
          confirm="Delete the program"
          isDangerous
          onConfirm={() => void remove(question)}
          onClose={() => setQuestion(null)}
        >
          <p>
            {question.name} is deleted for all users of this cluster. Its jobs continue: they have copies of
            it.
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}
