// What else a program meets: unions, enumerations, instants, pages and errors. It prints what it saw as JSON.
import {
  BulkActionsApi,
  Configuration,
  JobsApi,
  ResponseError,
  SchedulesApi,
  TemplatesApi,
  instanceOfMoveFigures,
} from './carillon/index.js';
import type { JobBody, Problem } from './carillon/index.js';

const { CARILLON_URL, CARILLON_TOKEN, APP_ID: appId = '' } = process.env;
const configuration = new Configuration({ basePath: CARILLON_URL, accessToken: CARILLON_TOKEN });
const jobs = new JobsApi(configuration);
const schedules = new SchedulesApi(configuration);
const templates = new TemplatesApi(configuration);
const bulkActions = new BulkActionsApi(configuration);
const seen: Record<string, unknown> = {};

const template = { name: 'tour', body: { alert: '{{who}}' }, defaults: { who: 'you' } };
const one = await templates.createTemplate({ appId, templateBodies: { ...template, locale: 'en' } });
seen.oneTemplate = Array.isArray(one) ? one.length : one.locale;
const several = ['pt', 'es'].map((locale) => ({ ...template, locale }));
const made = await templates.createTemplate({ appId, multiple: true, templateBodies: several });
seen.severalTemplates = Array.isArray(made) ? made.map((each) => each.locale) : made.locale;

const page = await templates.listTemplatesRaw({ appId, limit: 1 });
seen.page = (await page.value()).length;
seen.isFollowed = page.raw.headers.get('link') !== null;

const due = '2160-01-01T00:00:00Z';
await schedules.createSchedule({
  idempotencyKey: 'tour',
  scheduleBody: {
    key: 'tour',
    schedules: [due],
    callback: { type: 'http', data: { url: 'https://example.com/hook', payload: { id: 42 } } },
    misfire: { fire_within_seconds: 60 },
  },
});
const schedule = await schedules.getSchedule({ key: 'tour' });
seen.callback = schedule.callback.type === 'http' ? schedule.callback.data.url : schedule.callback.type;
seen.misfire = typeof schedule.misfire === 'object' ? schedule.misfire.fire_within_seconds : schedule.misfire;
seen.state = schedule.state;
seen.isDueThen = new Date(schedule.next?.[0] ?? 0).getTime() === new Date(due).getTime();

const figures = await bulkActions.createBulkAction({
  dryRun: true,
  bulkActionBody: { act: 'schedule.pause', filter: { prefix: 'tour' }, reason: 'to see how many' },
});
seen.matched = 'matched' in figures ? figures.matched : null;

const jobBody: JobBody = { service: 'apns', startsAt: 6_000_000_000 * 10 ** 9 };
const job = await jobs.createJob({ appId, template: 'tour', jobBody });
seen.startsAt = job.startsAt / 10 ** 9;
const told = await jobs.stopJob({ appId, jobId: job.id, dryRun: true });
seen.wouldStop = instanceOfMoveFigures(told) ? told.jobs : null;
const stopped = await jobs.stopJob({ appId, jobId: job.id });
seen.stopped = instanceOfMoveFigures(stopped) ? null : stopped.state;

try {
  await jobs.getJob({ appId, jobId: '00000000-0000-4000-8000-000000000000' });
} catch (error) {
  if (!(error instanceof ResponseError)) throw error;
  const problem: Problem = await error.response.json();
  seen.problem = [problem.status, problem.field];
}
console.log(JSON.stringify(seen));
