// Administrators in Go: single offsets, log directories, reassignments. The group has committed offset 7 of partition
// 0 of the topic. Each verb is a library; facts are told step by step, the same ones by both.
package main

import "kafkalite.interop/script"

func main() {
	verb, task := script.Asked()
	switch verb {
	case "kadm":
		byKadm(task)
	case "sarama":
		bySarama(task)
	}
}

func tell(step string, is any) { script.Tell(map[string]any{"step": step, "is": is}) }
