package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The fields of a JSON line.
const (
	fieldTime = iota
	fieldClient
	fieldUser
	fieldPlan
	fieldRequest // a request line, used if there is no method and path
	fieldMethod
	fieldPath
	fieldHost
	fieldsCount
)

// fields are the names of the fields in a log.
type fields struct {
	names [fieldsCount]string   // comma-separated, the best first
	known map[string]namedField // by path: "time", "request.uri"
	inner map[string]bool       // objects that contain fields: "request"
	hops  int                   // --hops
}

type namedField struct{ field, rank int }

func newFields() *fields {
	return &fields{names: [fieldsCount]string{
		fieldTime:    "time,ts,timestamp,@timestamp,time_iso8601,time_local,msec,StartUTC,StartLocal",
		fieldClient:  "client,client_ip,remote_ip,remote_addr,request.client_ip,request.remote_ip,ClientHost",
		fieldUser:    "user,user_id,remote_user,ClientUsername",
		fieldPlan:    "plan",
		fieldRequest: "request",
		fieldMethod:  "method,request_method,request.method,RequestMethod",
		fieldPath:    "path,uri,request_uri,url,request.uri,RequestPath",
		fieldHost:    "host,http_host,request.host,RequestHost",
	}}
}

// prepare builds the maps for look-ups.
func (f *fields) prepare() {
	f.known, f.inner = map[string]namedField{}, map[string]bool{}
	for field, names := range f.names {
		for rank, name := range strings.Split(names, ",") {
			name = strings.TrimSpace(name)
			if _, taken := f.known[name]; taken || name == "" {
				continue
			}
			f.known[name] = namedField{field, rank}
			for i, c := range name {
				if c == '.' {
					f.inner[name[:i]] = true
				}
			}
		}
	}
}

// jsonLine reads a JSON object.
type jsonLine struct {
	input   bytes.Reader
	decoder jsontext.Decoder
	path    []byte
	values  [fieldsCount]jsonValue
	spare   []byte // buffer for the next value
}

type jsonValue struct {
	text []byte
	rank int // of its name; -1 for no value
}

// object parses a line that is a JSON object.
func (p *parser) object(line []byte) (e entry, err error) {
	if err := p.json.scan(p.fields, line); err != nil {
		return e, fmt.Errorf("not JSON: %w", err)
	}

	value := func(field int) []byte {
		if v := p.json.values[field]; v.rank >= 0 {
			return v.text
		}
		return nil
	}

	missing := func(field int) error {
		if err := dockerJSONFile(line); err != nil {
			return err
		}
		return fmt.Errorf("no field %s", strings.ReplaceAll(p.fields.names[field], ",", " or "))
	}

	when := value(fieldTime)
	if when == nil {
		return e, missing(fieldTime)
	}
	if e.at, err = p.clock.read(when); err != nil {
		return e, err
	}

	client := value(fieldClient)
	if client == nil {
		return e, missing(fieldClient)
	}
	if client, err = p.fields.hop(client); err != nil {
		return e, err
	}
	e.client, e.user, e.plan, e.host = string(client), string(value(fieldUser)), string(value(fieldPlan)), string(value(fieldHost))
	if e.user == "-" { // nginx's word for no user
		e.user = ""
	}

	method, path, request := value(fieldMethod), value(fieldPath), value(fieldRequest)
	switch {
	case method != nil && path != nil:
		return e, e.setTarget(method, string(path))
	case request != nil:
		return e, e.setRequest(request)
	case method == nil:
		return e, missing(fieldMethod)
	default:
		return e, missing(fieldPath)
	}
}

// lenient allows other encodings, also outside the fields.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// scan reads the values of the fields.
func (j *jsonLine) scan(f *fields, line []byte) error {
	for i := range j.values {
		j.values[i].rank = -1
	}
	j.input.Reset(line)
	j.decoder.Reset(&j.input, lenient...)
	j.path = j.path[:0]
	if err := j.object(f); err != nil {
		return err
	}
	if _, err := j.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("text after the object; want one object a line")
	}
	return nil
}

// object reads an object whose path is j.path.
func (j *jsonLine) object(f *fields) error {
	if _, err := j.decoder.ReadToken(); err != nil { // {
		return err
	}

	parent := len(j.path)
	for j.decoder.PeekKind() == '"' {
		name, err := j.decoder.ReadValue()
		if err != nil {
			return err
		}

		if parent > 0 {
			j.path = append(j.path, '.')
		}
		j.path, _ = jsontext.AppendUnquote(j.path, name) // valid JSON; invalid UTF-8 becomes U+FFFD
		if err := j.value(f); err != nil {
			return err
		}
		j.path = j.path[:parent]
	}

	_, err := j.decoder.ReadToken() // }
	return err
}

// value reads the value at j.path.
func (j *jsonLine) value(f *fields) error {
	kind := j.decoder.PeekKind()
	if kind == '{' && f.inner[string(j.path)] {
		return j.object(f)
	}

	named, ok := f.known[string(j.path)]
	if !ok || kind != '"' && kind != '0' {
		return j.decoder.SkipValue()
	}

	// The first of several fields with one meaning counts, but the most precise time.
	v := &j.values[named.field]
	secondTime := v.rank >= 0 && named.field == fieldTime
	if v.rank >= 0 && v.rank < named.rank && !secondTime {
		return j.decoder.SkipValue()
	}

	raw, err := j.decoder.ReadValue()
	if err != nil {
		return err
	}
	text := j.spare[:0]
	if kind == '0' {
		text = append(text, raw...)
	} else {
		text, _ = jsontext.AppendUnquote(text, raw)
	}

	if secondTime {
		was, is := precision(v.text), precision(text)
		if is < was || is == was && v.rank < named.rank {
			j.spare = text
			return nil
		}
	}

	v.rank, v.text, j.spare = named.rank, text, v.text
	return nil
}
