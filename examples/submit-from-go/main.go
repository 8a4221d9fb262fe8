// Submits WindowWordCount to a tailrace cluster, from Go: one Avro record to one Kafka topic, and the answer from
// another.
//
//	go run . -schema schema.json [-tenant NAME] [-ca FILE -user NAME -password-file FILE] \
//	  BOOTSTRAP CLUSTER TEXT_HOST TEXT_PORT
//
// With -user it connects by SASL_SSL with SCRAM-SHA-512. The principal needs Write on CLUSTER.submissions and Read on
// CLUSTER.answers. With -tenant these are CLUSTER.submissions.NAME and CLUSTER.answers.NAME. It prints the id of the job
// when the cluster has accepted it. See docs/submit-from-anywhere.md, which also has the command that prints schema.json.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/hamba/avro/v2/soe"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const answerTimeout = 2 * time.Minute

type header struct {
	EventID     string    `avro:"event_id"`
	Time        time.Time `avro:"time"`
	Sender      string    `avro:"sender"`
	SenderEpoch int64     `avro:"sender_epoch"`
	Recipient   string    `avro:"recipient"`
}

type entryPoint struct {
	Target    string   `avro:"target"`
	Arguments []string `avro:"arguments"`
}

// Fields of the schema that are not named here have their defaults.
type submitJob struct {
	Header     header      `avro:"header"`
	JobID      string      `avro:"job_id"`
	EntryPoint *entryPoint `avro:"entry_point"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "submit-from-go:", err)
		os.Exit(1)
	}
}

func run() error {
	schemaFile := flag.String("schema", "schema.json", "the schema of SubmitJob in one piece")
	tenant := flag.String("tenant", "", "the tenant that submits; empty: none")
	ca := flag.String("ca", "", "the certificate authorities of the brokers, PEM; empty: the system's")
	user := flag.String("user", "", "the user of SCRAM-SHA-512; empty: no TLS and no login")
	passwordFile := flag.String("password-file", "", "a file whose first line is the password")
	flag.Parse()
	if flag.NArg() != 4 {
		return errors.New("give BOOTSTRAP CLUSTER TEXT_HOST TEXT_PORT")
	}
	servers, cluster, host, port := flag.Arg(0), flag.Arg(1), flag.Arg(2), flag.Arg(3)
	submissions, answers := cluster+".submissions", cluster+".answers"
	if *tenant != "" {
		submissions, answers = submissions+"."+*tenant, answers+"."+*tenant
	}

	jobID := "wordcount-" + randomID()
	// A sender of its own: the key of the answers to this submission.
	sender := "client/go-example-" + randomID()
	value, err := encode(*schemaFile, submitJob{
		Header: header{
			EventID:   randomID(),
			Time:      time.Now(),
			Sender:    sender,
			Recipient: "dispatcher",
		},
		JobID: jobID,
		EntryPoint: &entryPoint{
			Target:    "tailrace.pipelines.examples.window_word_count:main",
			Arguments: []string{"--hostname", host, "--port", port},
		},
	})
	if err != nil {
		return err
	}

	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.RecordDeliveryTimeout(30 * time.Second),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			answers: {0: kgo.NewOffset().AfterMilli(time.Now().Add(-time.Minute).UnixMilli())},
		}),
	}
	if *user != "" {
		secured, err := login(*ca, *user, *passwordFile)
		if err != nil {
			return err
		}
		options = append(options, secured...)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	record := &kgo.Record{Topic: submissions, Key: []byte(jobID), Value: value}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		return fmt.Errorf("%s does not accept the job: %w", record.Topic, err)
	}
	patience, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	answer, err := awaitAnswer(patience, client, sender)
	if err != nil {
		return err
	}
	if answer != "tailrace.client.JobAccepted" {
		return fmt.Errorf("job %s: %s", jobID, answer)
	}
	fmt.Println(jobID)
	return nil
}

// awaitAnswer returns the type of the first answer to the sender. Its value is the event, in the encoding of the
// submission: JobRejected has a reason.
func awaitAnswer(patience context.Context, client *kgo.Client, sender string) (string, error) {
	for {
		fetches := client.PollFetches(patience)
		if patience.Err() != nil {
			return "", fmt.Errorf("no answer within %s: the next jobmanager that starts handles the job", answerTimeout)
		}
		if failures := fetches.Errors(); len(failures) > 0 {
			return "", fmt.Errorf("%s can't be read: %w", failures[0].Topic, failures[0].Err)
		}
		for _, record := range fetches.Records() {
			if string(record.Key) != sender {
				continue
			}
			for _, each := range record.Headers {
				if each.Key == "type" {
					return string(each.Value), nil
				}
			}
		}
	}
}

// encode returns the job in Avro's single-object encoding: C3 01, the schema's fingerprint, the record.
func encode(schemaFile string, job submitJob) ([]byte, error) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		return nil, err
	}
	schema, err := avro.Parse(string(text))
	if err != nil {
		return nil, err
	}
	codec, err := soe.NewCodec(schema)
	if err != nil {
		return nil, err
	}
	return codec.Encode(job)
}

func login(ca, user, passwordFile string) ([]kgo.Opt, error) {
	password, err := os.ReadFile(passwordFile)
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(password), "\n")
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		authorities, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
	}
	mechanism := scram.Auth{User: user, Pass: strings.TrimSuffix(first, "\r")}.AsSha512Mechanism()
	return []kgo.Opt{kgo.DialTLSConfig(config), kgo.SASL(mechanism)}, nil
}

func randomID() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return hex.EncodeToString(bytes)
}
