package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// MalformedError is an error of a request that does not name exactly one account. The client gets it as
// the detail of a 400, so write a sentence without secrets.
type MalformedError string

func (m MalformedError) Error() string { return "signin: " + string(m) }

// JSON returns a function that reads the account from a field of a JSON object, at its top:
// {"username": "alice"}. All decoders must read the same account, so these are [MalformedError]: a body
// that is not one JSON object, another Content-Type than application/json, a field that is
// missing, empty, not a string or there twice, in whatever letter case, or also in the query. It panics
// if field is "".
func JSON(field string) keyfunc.Func {
	want := MalformedError("The body must be a JSON object with one string " + field + ", and Content-Type application/json.")
	return source(field, want, jsonFields, "application/json")
}

// Form returns a function that reads the account from a field of a form, URL-encoded or multipart,
// in a POST, PUT or PATCH. What is [MalformedError] in JSON is so here.
func Form(field string) keyfunc.Func {
	want := MalformedError("The body must be a form with one field " + field + ".")
	return source(field, want, formFields, "application/x-www-form-urlencoded", "multipart/form-data")
}

func source(field string, want MalformedError, read func(*http.Request) url.Values, types ...string) keyfunc.Func {
	if field == "" {
		panic(`signin: the field of the account has no name; want such as signin.JSON("username")`)
	}
	return func(r *http.Request) (string, error) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err == nil && count(query, field) == 0 && slices.Contains(types, contentType(r)) {
			fields := read(r)
			if account := fields.Get(field); account != "" && count(fields, field) == 1 {
				return account, nil
			}
		}
		return "", want
	}
}

// contentType returns the media type of the body, or "" if two decoders could see two.
func contentType(r *http.Request) string {
	if values := r.Header["Content-Type"]; len(values) == 1 {
		if media, _, err := mime.ParseMediaType(values[0]); err == nil {
			return media
		}
	}
	return ""
}

// count returns how many values the field has, under all names that a decoder may take for it.
func count(fields url.Values, field string) (n int) {
	for name, values := range fields {
		if fold(name) == fold(field) {
			n += len(values)
		}
	}
	return n
}

// jsonFields returns the strings of a JSON object, "" for other values, or nil if it is none.
func jsonFields(r *http.Request) url.Values {
	data, err := io.ReadAll(r.Body)
	d := json.NewDecoder(bytes.NewReader(data))
	first, _ := d.Token()
	if err != nil || !json.Valid(data) || first != json.Delim('{') {
		return nil
	}

	fields := url.Values{}
	for d.More() { // without errors, as the whole is valid
		name, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		text := ""
		_ = json.Unmarshal(value, &text)
		fields.Add(name.(string), text)
	}
	return fields
}

// formFields returns the fields of the body's form, or nil if it has none.
func formFields(r *http.Request) url.Values {
	if r.ParseForm() != nil || contentType(r) == "multipart/form-data" && r.ParseMultipartForm(maxBody) != nil { // bounded
		return nil
	}
	return r.PostForm
}

// fold returns one text for all letter cases of a text, also for those that decoders and databases
// compare by upper case, such as "ſ" and "ı".
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

// normal returns the account as it is counted.
func normal(name string) (string, error) {
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return unicode.Is(unicode.Cf, r) }), "") // without a width
	name = fold(strings.Join(strings.Fields(name), " "))
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || unicode.IsControl(r) }) {
		return "", MalformedError("The account is empty, or has characters that no name has.")
	}
	return name, nil
}

// The largest body that is read, and the time that it may take.
const (
	maxBody  = 64 << 10
	bodyTime = 5 * time.Second

	errTooLarge MalformedError = "The body is too large, or did not arrive."
	errSlow     MalformedError = "The body did not arrive in time."
)

// body is what the function for the account reads: the body of a request, up to maxBody and
// bodyTime. The first Read reads it all.
type body struct {
	original io.ReadCloser
	data     *bytes.Reader  // nil before the first Read
	err      MalformedError // "" if there is none
}

func (b *body) Close() error { return nil }

func (b *body) Read(p []byte) (int, error) {
	if b.data == nil {
		b.load()
	}
	if b.err != "" {
		return 0, b.err
	}
	return b.data.Read(p)
}

// load reads the original, which has no deadline.
func (b *body) load() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), bodyTime, errSlow)
	defer cancel()
	var data []byte
	err := await.Call(ctx, func() (err error) {
		data, err = io.ReadAll(io.LimitReader(b.original, maxBody+1))
		return err
	})

	if errors.Is(err, errSlow) { // data is the reader's that goes on
		b.data, b.err = bytes.NewReader(nil), errSlow
		return
	}
	b.data = bytes.NewReader(data)
	if err != nil || len(data) > maxBody {
		b.err = errTooLarge
	}
}

// whole returns what the application reads: all of the body.
func (b *body) whole() io.Reader {
	switch {
	case b.data == nil:
		return b.original
	case b.err == errSlow:
		return b // the goroutine still reads the original
	}
	_, _ = b.data.Seek(0, io.SeekStart)
	return io.MultiReader(b.data, b.original)
}
