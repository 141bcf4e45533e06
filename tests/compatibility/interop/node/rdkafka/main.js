// node-rdkafka at work: produce, consume, be a group member. See script.js for how it is asked.
'use strict'

const rdkafka = require('node-rdkafka')
const { records, whenAskedToLeave, tell, tellRecord, run } = require('../script.js')

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
  version: async () => tell({ version: rdkafka.librdkafkaVersion, features: rdkafka.features }),
})
