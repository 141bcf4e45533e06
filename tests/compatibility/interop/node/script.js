// What the programs of this directory share: a task comes as JSON in the second argument, records and commands come as
// lines on stdin, and what happened goes out as JSON lines on stdout. Keys and values travel as base64, null stays null.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')

const asBuffer = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const asText = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))

function records() {
  const lines = fs.readFileSync(0, 'utf8').split('\n').filter(Boolean)
  return lines.map(JSON.parse).map((r) => ({
    ...r,
    key: asBuffer(r.key),
    value: asBuffer(r.value),
    headers: r.headers.map(({ key, value }) => ({ key, value: asBuffer(value) })),
  }))
}

// Obeys the commands of a transactional producer, one a line; `obey` throws to refuse.
async function obeyCommands(obey) {
  tell({})
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      await obey(JSON.parse(line))
      tell({})
    } catch (error) {
      tell({ error: String(error) })
    }
  }
}

// Answers commands, one a line, with the values that `obey` brings, or with the error that it throws.
async function answerEach(obey) {
  tell({})
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      tell({ values: await obey(JSON.parse(line)) })
    } catch (error) {
      tell({ error: String(error) })
    }
  }
}

// Calls back at the end of stdin.
function whenAskedToLeave(leave) {
  process.stdin.resume()
  process.stdin.on('end', leave)
}

const tell = (what) => fs.writeSync(1, JSON.stringify(what) + '\n')

function tellRecord({ partition, offset, timestamp_ms, key, value, headers }) {
  const named = headers.map((h) => ({ key: h.key, value: asText(h.value) }))
  tell({ partition, offset, timestamp_ms, key: asText(key), value: asText(value), headers: named })
}

// Runs the verb that was asked for; what it throws ends the program.
function run(verbs) {
  const [verb, task] = process.argv.slice(2)
  verbs[verb](JSON.parse(task)).then(
    () => process.exit(0),
    (error) => {
      console.error(error)
      process.exit(1)
    },
  )
}

module.exports = { answerEach, records, obeyCommands, whenAskedToLeave, tell, tellRecord, run }
