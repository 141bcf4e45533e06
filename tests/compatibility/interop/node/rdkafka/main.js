// node-rdkafka at work: produce, consume, be a group member. See script.js for how it is asked.
'use strict'

const rdkafka = require('node-rdkafka')
const { records, obeyCommands, whenAskedToLeave, tell, tellRecord, run } = require('../script.js')

const called = (what) => new Promise((done, failed) => what((error, value) => (error ? failed(error) : done(value))))

async function produce(task) {
  const producer = new rdkafka.Producer({
    'bootstrap.servers': task.bootstrap, 'compression.codec': task.codec, 'linger.ms': 20,
    'enable.idempotence': Boolean(task.idempotent), acks: task.acks, 'message.timeout.ms': 15000, dr_cb: true,
  })
  await called((back) => producer.connect({}, back))
  producer.setPollInterval(10)
  const asked = records()
  let left = asked.length
  const delivered = new Promise((done, failed) => {
    producer.on('delivery-report', (error, report) => {
      if (error) return failed(error)
      asked[report.opaque].offset = report.offset
      left -= 1
      if (left === 0) done()
    })
  })
  asked.forEach((r, number) => {
    const headers = r.headers.map(({ key, value }) => ({ [key]: value }))
    producer.produce(task.topic, r.partition, r.value, r.key, r.timestamp_ms, number, headers)
  })
  await delivered
  for (const { partition, offset } of asked) tell({ partition, offset })
  await called((back) => producer.disconnect(back))
}

// A transactional producer that is initialised, and a promise of each delivery.
async function transactional(task) {
  const producer = new rdkafka.Producer({
    'bootstrap.servers': task.bootstrap, 'transactional.id': task.transactional_id, 'linger.ms': 1,
    'transaction.timeout.ms': task.timeout_ms, 'message.timeout.ms': Math.min(task.timeout_ms, 15000), dr_cb: true,
  })
  producer.on('event.error', () => {}) // a fatal one is told by the next call as well
  producer.on('delivery-report', (error, { opaque }) => (error ? opaque.failed(error) : opaque.done()))
  await called((back) => producer.connect({}, back))
  producer.setPollInterval(10)
  await called((back) => producer.initTransactions(60000, back))
  const send = (topic, partition, value) =>
    new Promise((done, failed) => producer.produce(topic, partition, Buffer.from(value), null, null, { done, failed }))
  return { producer, send }
}

async function transact(task) {
  const { producer, send } = await transactional(task)
  await obeyCommands(async ({ do: what, topic, partition = 0, value, group, offset }) => {
    if (what === 'begin') {
      await called((back) => producer.beginTransaction(back))
    } else if (what === 'send') {
      await send(topic, partition, value)
    } else if (what === 'offsets') {
      const reader = new rdkafka.KafkaConsumer({ 'bootstrap.servers': task.bootstrap, 'group.id': group })
      await called((back) => reader.connect({}, back))
      await called((back) => producer.sendOffsetsToTransaction([{ topic, partition, offset }], reader, 60000, back))
      await called((back) => reader.disconnect(back))
    } else if (what === 'commit') {
      await called((back) => producer.commitTransaction(60000, back))
    } else {
      await called((back) => producer.abortTransaction(60000, back))
    }
  })
}

// Copies from topic to topic; every third batch is sent in a transaction that is aborted first.
async function copy(task) {
  const { producer, send } = await transactional(task)
  const reader = new rdkafka.KafkaConsumer({
    'bootstrap.servers': task.bootstrap, 'group.id': task.group, 'enable.auto.commit': false,
    'session.timeout.ms': task.session_ms, 'heartbeat.interval.ms': 100, 'fetch.wait.max.ms': 100,
  }, { 'auto.offset.reset': 'earliest' })
  await called((back) => reader.connect({}, back))
  reader.subscribe([task.topic])
  let leaving = false
  whenAskedToLeave(() => (leaving = true))
  const carry = async (messages) => {
    await called((back) => producer.beginTransaction(back))
    await Promise.all(messages.map(({ partition, value }) => send(task.target, partition, value)))
    const ends = new Map(messages.map(({ topic, partition, offset }) => [partition, { topic, partition, offset: offset + 1 }]))
    await called((back) => producer.sendOffsetsToTransaction([...ends.values()], reader, 60000, back))
  }
  for (let turn = 0; !leaving; ) {
    const messages = await called((back) => reader.consume(task.count, back))
    if (messages.length === 0) continue
    if (turn % 3 === 2) {
      await carry(messages)
      await called((back) => producer.abortTransaction(60000, back))
    }
    await carry(messages)
    await called((back) => producer.commitTransaction(60000, back))
    turn += 1
    tell({ copied: messages.length })
  }
  await called((back) => reader.disconnect(back))
}

async function consumer(task, group) {
  const settings = {
    'bootstrap.servers': task.bootstrap, 'group.id': group, 'enable.auto.commit': false,
    'session.timeout.ms': 6000, 'heartbeat.interval.ms': 100, 'fetch.wait.max.ms': 100,
    'partition.assignment.strategy': task.style || 'range', rebalance_cb: true,
  }
  const made = new rdkafka.KafkaConsumer(settings, { 'auto.offset.reset': 'earliest' })
  made.on('event.error', (error) => {
    console.error(error)
    process.exit(1)
  })
  await called((back) => made.connect({}, back))
  made.subscribe([task.topic])
  made.consume()
  return made
}

async function consume(task) {
  const reader = await consumer(task, `${task.topic}-${process.pid}`)
  let left = task.count
  await new Promise((done) => {
    reader.on('data', (message) => {
      tellMessage(message)
      left -= 1
      if (left === 0) done()
    })
  })
  await called((back) => reader.disconnect(back))
}

async function member(task) {
  const reader = await consumer(task, task.group)
  reader.on('data', (message) => {
    reader.commitMessageSync(message)
    tellMessage(message)
  })
  await new Promise(whenAskedToLeave)
  await called((back) => reader.disconnect(back))
}

function tellMessage({ partition, offset, timestamp, key, value, headers }) {
  const named = (headers || []).flatMap((one) => Object.entries(one).map(([name, v]) => ({ key: name, value: v })))
  tellRecord({ partition, offset, timestamp_ms: timestamp, key, value, headers: named })
}

run({
  produce,
  consume,
  member,
  transact,
  copy,
  version: async () => tell({ version: rdkafka.librdkafkaVersion, features: rdkafka.features }),
})
