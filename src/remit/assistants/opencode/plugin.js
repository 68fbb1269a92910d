// Remit protection @PROTECTION@, written by `remit protect`, which can take it out again.
// Every tool call is asked about first. One answer lets it run; anything else, and any failure, throws, which blocks it.
// Nothing is read or reached while this file is loaded: opencode runs everything if a plugin cannot be loaded.

import { createHash, createHmac, randomBytes } from "node:crypto"
import { linkSync, readFileSync, unlinkSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { dirname } from "node:path"

const WIRE = "@WIRE@"
const LOCAL = ["127.0.0.1", "localhost", "[::1]"]
const MAX_ANSWER = 1024 * 1024
const MAX_LINE = 32
const UNASKED = "nothing is let through without it. Start it with: remit up --background"

// The words of what went wrong inside are left out: they could tell what is in the wire file.
function wire() {
  try {
    const { url, token, proof, deadline_s } = JSON.parse(readFileSync(WIRE, "utf8"))
    const address = new URL(url)
    const isPlain = [token, proof].every((text) => /^[\x21-\x7e]+$/.test(text))
    if (address.protocol === "http:" && LOCAL.includes(address.hostname) && deadline_s > 0 && isPlain) {
      return { address, token, proof, patience: deadline_s * 1000 }
    }
  } catch {}
  throw new Error(`Remit: the wire file of this protection cannot be used; ${UNASKED}`)
}

// The secret of a session, made by its first event and kept in the home: only events that show it count in the session.
function secretOf(address, session) {
  const name = createHash("sha256").update(`${address.pathname}\n${session}`).digest("hex")
  const place = `${dirname(WIRE)}/sessions/${name}`
  const read = () => readFileSync(place, "utf8")
  try {
    return read()
  } catch (error) {
    if (error.code !== "ENOENT") throw error
  }
  const made = `${place}.${randomBytes(8).toString("hex")}`
  writeFileSync(made, randomBytes(32).toString("hex"), { flag: "wx", mode: 0o600 })
  try {
    linkSync(made, place)
  } catch (error) {
    if (error.code !== "EEXIST") throw error
  } finally {
    unlinkSync(made)
  }
  return read()
}

// Over a plain socket: what fetches addresses here would send the token to a proxy that the environment names.
function post({ address, token, patience }, secret, nonce, body) {
  const head = [
    `POST ${address.pathname} HTTP/1.1`,
    `Host: ${address.host}`,
    `Authorization: Bearer ${token}`,
    `X-Remit-Session: ${secret}`,
    `X-Remit-Nonce: ${nonce}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ]
  return new Promise((resolve, reject) => {
    const parts = []
    let size = 0
    const peer = connect({ host: address.hostname.replace(/[[\]]/g, ""), port: Number(address.port || 80) })
    const end = (settle, value) => (clearTimeout(late), peer.destroy(), settle(value))
    const late = setTimeout(() => end(reject, new Error("late")), patience)
    peer.on("connect", () => peer.write(`${head.join("\r\n")}\r\n\r\n${body}`))
    peer.on("error", (error) => end(reject, error))
    peer.on("data", (part) => {
      parts.push(part)
      size += part.length
      if (size > MAX_ANSWER) end(reject, new Error("large"))
    })
    peer.on("close", () => end(resolve, Buffer.concat(parts)))
  })
}

// The body of an answer that came in full, from the Hub and from nothing else that listens there.
function bodyOf(answer, proof, nonce, said) {
  const split = answer.indexOf("\r\n\r\n")
  const head = answer.subarray(0, Math.max(split, 0)).toString("latin1")
  const body = answer.subarray(split + 4)
  const length = /^content-length: *(\d+) *$/im.exec(head)
  const asked = createHash("sha256").update(said).digest("hex")
  const right = createHmac("sha256", proof).update(`${nonce}\n${asked}\n`).update(body).digest("hex")
  const shown = /^x-remit-hook: *([0-9a-f]{64}) *$/im.exec(head)
  const isOurs = head.startsWith("HTTP/1.1 200 ") && shown?.[1] === right
  if (!isOurs || !length || body.length !== Number(length[1])) throw new Error("no answer")
  return body.toString("utf8")
}

async function ask(said) {
  const way = wire()
  try {
    const nonce = randomBytes(16).toString("hex")
    const text = JSON.stringify(said)
    const answer = await post(way, secretOf(way.address, said.lead), nonce, text)
    return JSON.parse(bodyOf(answer, way.proof, nonce, text))
  } catch {
    throw new Error(`Remit: the Hub does not answer; ${UNASKED}`)
  }
}

export const Remit = async ({ client, directory }) => {
  const lines = new Map()
  const words = new Map()

  // Which session a session of subagents began with. One that was there before this process is asked for.
  const lineOf = async (session, depth = 0) => {
    if (lines.has(session)) return lines.get(session)
    const { data } = depth < MAX_LINE ? await client.session.get({ path: { id: session } }) : {}
    if (data?.id !== session) throw new Error("Remit: opencode does not tell whose session this is")
    const lead = data.parentID ? (await lineOf(data.parentID, depth + 1)).lead : session
    lines.set(session, { session, lead, agent: data.agent ?? "" })
    return lines.get(session)
  }

  const tell = async (event, session, more = {}) => ask({ event, ...(await lineOf(session)), directory, ...more })

  // What the model is told at the start of a session; until the Hub can be asked, nothing.
  const wordsFor = (session) => {
    if (!words.has(session)) {
      const asked = tell("session.created", session).then((answer) => answer.told ?? "")
      words.set(session, asked.catch(() => (words.delete(session), "")))
    }
    return words.get(session)
  }

  const told = async (event, session, more) => {
    try {
      await tell(event, session, more)
    } catch {
      // It is over by now: nothing is left that could be blocked.
    }
  }

  return {
    "tool.execute.before": async (input, output) => {
      const call = { tool: input.tool, call: input.callID, arguments: output.args ?? {} }
      const answer = await tell("tool.execute.before", input.sessionID, call)
      if (answer?.decision !== "permit") throw new Error(answer?.reason || "Remit refused this call")
    },
    "tool.execute.after": async (input, output) => {
      const call = { tool: input.tool, call: input.callID, arguments: input.args ?? {}, result: output ?? null }
      await told("tool.execute.after", input.sessionID, call)
    },
    "experimental.chat.system.transform": async (input, output) => {
      const said = input.sessionID ? await wordsFor(input.sessionID) : ""
      if (said) output.system.push(said)
    },
    event: async ({ event }) => {
      const session = event.properties?.sessionID ?? event.properties?.info?.id
      if (event.type === "session.created") await wordsFor(session)
      if (event.type === "session.idle") await told("session.idle", session)
      if (event.type === "session.deleted") await told("session.deleted", session)
    },
    dispose: async () => {
      const leads = new Set([...lines.values()].map((line) => line.lead))
      await Promise.all([...leads].map((lead) => told("session.deleted", lead)))
    },
  }
}
