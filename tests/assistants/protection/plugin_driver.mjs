// Loads a plugin as opencode does, has it asked about one call of a subagent, and prints what came of it.
import { pathToFileURL } from "node:url"

const [, , file, command] = process.argv
const known = { lead: { id: "lead" }, kid: { id: "kid", parentID: "lead", agent: "general" } }
const client = { session: { get: async ({ path }) => ({ data: known[path.id] }) } }
const module = await import(pathToFileURL(file).href)
const hooks = await Object.values(module)[0]({ client, directory: "/project" })
const call = { tool: "bash", sessionID: process.env.SESSION ?? "kid", callID: "call-1" }
const args = { command }
const system = []
try {
  await hooks["experimental.chat.system.transform"]({ sessionID: call.sessionID }, { system })
  await hooks["tool.execute.before"](call, { args })
  await hooks["tool.execute.after"]({ ...call, args }, { title: command, output: "out", metadata: {} })
  console.log(JSON.stringify({ ran: true, system }))
} catch (error) {
  console.log(JSON.stringify({ ran: false, why: error.message, system }))
}
await hooks.event({ event: { type: "session.idle", properties: { sessionID: call.sessionID } } })
await hooks.dispose()
