import { useState } from "preact/hooks";
import { setToken, token } from "../api/token";

/** Asks for the token of the REST server. */
export function LoginBox() {
  const [text, setText] = useState("");
  return (
    <form
      class="card login"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "") setToken(text.trim());
      }}
    >
      <h1>Token</h1>
      <p class="muted">
        {token.value === null
          ? "This server needs a token."
          : "The server does not accept this token. It may be wrong or too old."}
      </p>
      <label>
        Token
        <input
          type="password"
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="primary">
        Continue
      </button>
      <p class="muted small">It is kept in this tab only.</p>
    </form>
  );
}
