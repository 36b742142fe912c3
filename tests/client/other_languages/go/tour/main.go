// What else a program meets: unions, enumerations, instants, pages and errors. It prints what it saw as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"time"

	"example.com/first/carillon"
)

const unknown = "00000000-0000-4000-8000-000000000000"

func main() {
	configuration := carillon.NewConfiguration()
	configuration.Servers = carillon.ServerConfigurations{{URL: os.Getenv("CARILLON_URL")}}
	client := carillon.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), carillon.ContextAccessToken, os.Getenv("CARILLON_TOKEN"))
	seen := map[string]interface{}{}
	makeTemplates(ctx, client, os.Getenv("APP_ID"), seen)
	makeSchedule(ctx, client, seen)
	stopJob(ctx, client, os.Getenv("APP_ID"), seen)
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		log.Fatal(err)
	}
}

func makeTemplates(ctx context.Context, client *carillon.APIClient, appId string, seen map[string]interface{}) {
	inLocale := func(locale string) carillon.TemplateBody {
		body := carillon.NewTemplateBody("tour", locale, map[string]interface{}{"alert": "{{who}}"})
		body.SetDefaults(map[string]interface{}{"who": "you"})
		return *body
	}
	one := inLocale("en")
	made, _, err := client.TemplatesAPI.CreateTemplate(ctx, appId).
		TemplateBodies(carillon.TemplateBodyAsTemplateBodies(&one)).Execute()
	check(err)
	seen["oneTemplate"] = made.Template.Locale
	several := []carillon.TemplateItemBody{
		carillon.TemplateItemBody(inLocale("pt")), carillon.TemplateItemBody(inLocale("es")),
	}
	made, _, err = client.TemplatesAPI.CreateTemplate(ctx, appId).Multiple(true).
		TemplateBodies(carillon.ArrayOfTemplateItemBodyAsTemplateBodies(&several)).Execute()
	check(err)
	locales := []string{}
	for _, template := range *made.ArrayOfTemplateItem {
		locales = append(locales, template.Locale)
	}
	seen["severalTemplates"] = locales

	page, answer, err := client.TemplatesAPI.ListTemplates(ctx, appId).Limit(1).Execute()
	check(err)
	seen["page"], seen["isFollowed"] = len(page), answer.Header.Get("Link") != ""
}

func makeSchedule(ctx context.Context, client *carillon.APIClient, seen map[string]interface{}) {
	due := time.Date(2160, 1, 1, 0, 0, 0, 0, time.UTC)
	call := carillon.NewHttpCallback("https://example.com/hook")
	call.SetPayload(map[string]interface{}{"id": 42})
	callback := carillon.HttpBodyAsCallback(carillon.NewHttpBody("http", *call))
	body := carillon.NewScheduleBody(callback)
	body.SetKey("tour")
	body.SetSchedules([]time.Time{due})
	body.SetMisfire(carillon.FireWithinAsMisfire(carillon.NewFireWithin(60)))
	_, _, err := client.SchedulesAPI.CreateSchedule(ctx).IdempotencyKey("tour").ScheduleBody(*body).Execute()
	check(err)
	schedule, _, err := client.SchedulesAPI.GetSchedule(ctx, "tour").Execute()
	check(err)
	seen["callback"] = schedule.Callback.HttpBody.Data.Url
	seen["misfire"] = schedule.Misfire.FireWithin.FireWithinSeconds
	seen["state"] = schedule.State
	seen["isDueThen"] = schedule.Next[0].Equal(due)

	filter := carillon.NewBulkFilterBody()
	filter.SetPrefix("tour")
	action := carillon.NewBulkActionBody(carillon.BULKACT_SCHEDULE_PAUSE, *filter, "to see how many")
	figures, _, err := client.BulkActionsAPI.CreateBulkAction(ctx).DryRun(true).BulkActionBody(*action).Execute()
	check(err)
	seen["matched"] = figures.BulkFigures.Matched
}

func stopJob(ctx context.Context, client *carillon.APIClient, appId string, seen map[string]interface{}) {
	body := carillon.NewJobBody("apns")
	body.SetStartsAt(6_000_000_000 * time.Second.Nanoseconds())
	job, _, err := client.JobsAPI.CreateJob(ctx, appId).Template("tour").JobBody(*body).Execute()
	check(err)
	seen["startsAt"] = job.StartsAt / time.Second.Nanoseconds()
	told, _, err := client.JobsAPI.StopJob(ctx, appId, job.Id).DryRun(true).Execute()
	check(err)
	seen["wouldStop"] = told.MoveFigures.Jobs
	stopped, _, err := client.JobsAPI.StopJob(ctx, appId, job.Id).Execute()
	check(err)
	seen["stopped"] = stopped.Job.State

	_, answer, err := client.JobsAPI.GetJob(ctx, appId, unknown).Execute()
	var refusal *carillon.GenericOpenAPIError
	if answer.StatusCode != http.StatusNotFound || !errors.As(err, &refusal) {
		log.Fatal(err)
	}
	problem := refusal.Model().(carillon.Problem)
	seen["problem"] = []interface{}{problem.Status, problem.GetField()}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
