package script

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
)

// AnswerEach answers a command a line with the values that it brought, or with what `name` calls its error.
func AnswerEach[Command any](obey func(Command) ([]string, error), name func(error) string) {
	Tell(struct{}{})
	decoder := json.NewDecoder(os.Stdin)
	for decoder.More() {
		var command Command
		Check(decoder.Decode(&command), "read a command")
		if values, err := obey(command); err != nil {
			Tell(map[string]string{"error": name(err)})
		} else {
			Tell(map[string][]string{"values": values})
		}
	}
}

// Login is how login_program.py tells a client to come to a broker: CA and Identity are PEM files, the second may be
// missing. The client writes Value, and returns the values of the topic.
type Login struct {
	Bootstrap string `json:"bootstrap"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Value     string `json:"value"`
	Protocol  string `json:"protocol"`
	Mechanism string `json:"mechanism"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	Token     string `json:"token"`
	CA        string `json:"ca"`
	Identity  string `json:"identity"`
	LimitMs   int    `json:"limit_ms"`
}

// TLS is what the files say.
func (l Login) TLS() *tls.Config {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(Must(os.ReadFile(l.CA))) {
		Check(errors.New("no certificate"), "read "+l.CA)
	}
	config := &tls.Config{RootCAs: pool}
	if l.Identity != "" {
		config.Certificates = []tls.Certificate{Must(tls.LoadX509KeyPair(l.Identity, l.Identity))}
	}
	return config
}
