package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	only  = flag.String("only", "", "take only the pictures whose `name` has this")
	shots = flag.String("shots", "", "write the pictures of the documentation into this `folder`")
	warm  = flag.Duration("warm", 6*time.Minute, "how long the demo runs before that, so that its charts are full")
)

// pictureBytesMax is how large a picture in the repository may be.
const pictureBytesMax = 300 << 10

// A picture is one of the documentation.
type picture struct {
	name, path, says string
	width, height    int64
	theme            string
}

func pictures() []picture {
	return []picture{
		{"overview", "#/", "viral:cat-video", 1440, 1000, "light"},
		{"overview-dark", "#/", "viral:cat-video", 1440, 1000, "dark"},
		{"overview-narrow", "#/", "viral:cat-video", 375, 812, "dark"},
		{"counter", "#/counter/default/views%3Ahome", "Different users", 1440, 1080, "light"},
		{"counter-dark", "#/counter/default/views%3Ahome", "Different users", 1440, 1080, "dark"},
		{"counter-narrow", "#/counter/default/views%3Ahome", "Different users", 375, 812, "light"},
		{"reactions", "#/counter/default/post%3A42", "users in all", 1440, 800, "light"},
		{"stock", "#/counter/default/stock%3Asneakers", "Available", 1440, 1000, "light"},
		{"counters", "#/counters", "post:42", 1440, 800, "light"},
		{"policies", "#/policies", "in force since", 1440, 1080, "light"},
		{"limits", "#/decided", "5 per 1s", 1440, 900, "light"},
		{"operations", "#/operations", "rules of deploy", 1440, 800, "light"},
	}
}

// The demo fills every page that the documentation shows, and the pictures are small
// enough for a repository. With -shots they are written there.
func TestScreenshots(t *testing.T) {
	c := exec.Command(binary, "demo", "--rate", "120")
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	at := strings.Index(line, "http://")
	if err != nil || at < 0 {
		t.Fatalf("the demo says %q: %v", line, err)
	}
	url := strings.TrimSpace(line[at:])
	dir, all := t.TempDir(), pictures()
	if *shots == "" {
		all = all[3:6] // one page shows what there is to show
	}
	if *shots != "" {
		dir = *shots
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		<-time.After(*warm) // until there is something in the charts
	}
	for _, p := range all {
		if !strings.Contains(p.name, *only) {
			continue
		}
		b := open(t, p.width, p.height)
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.theme}}))
		b.to(url + p.path)
		b.says("#live", "Live")
		b.says("main", p.says)
		if *shots != "" {
			<-time.After(3 * time.Second) // for a few beats of the stream
		}
		var raw []byte
		b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
			raw, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
			return err
		}))
		if _, err := png.Decode(bytes.NewReader(raw)); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if len(raw) > pictureBytesMax {
			t.Errorf("%s has %d bytes, more than %d", p.name, len(raw), pictureBytesMax)
		}
		if err := os.WriteFile(filepath.Join(dir, p.name+".png"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
